// Asks weir whether four requests of a user may pass: client ADDRESS [DEADLINE_MS]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// connect returns the connection of the whole process: goroutines share it, and it reconnects.
func connect(address string) (*grpc.ClientConn, error) {
	reconnect := backoff.DefaultConfig
	reconnect.MaxDelay = 5 * time.Second
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// All addresses of the name get calls.
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		// A ping detects a connection that hangs.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time:                30 * time.Second,
			Timeout:             5 * time.Second,
			PermitWithoutStream: true,
		}),
		// The longest pause before the connection is opened again.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: 5 * time.Second}))
}

// limiter decides requests. Without a decision they pass. Only one goroutine may use it.
type limiter struct {
	weir     rls.RateLimitServiceClient
	failures map[codes.Code]int
}

func (l *limiter) mayPass(user string, hits uint64, deadline time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	response, err := l.weir.ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain: "demo",
		Descriptors: []*common.RateLimitDescriptor{{
			Entries:    []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
			HitsAddend: wrapperspb.UInt64(hits),
		}},
	})
	if err != nil {
		l.failures[status.Code(err)]++
		log.Print("no decision: ", err)
		return true
	}
	return response.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT
}

func main() {
	deadline := 50 * time.Millisecond
	if len(os.Args) > 2 {
		ms, err := strconv.Atoi(os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		deadline = time.Duration(ms) * time.Millisecond
	}
	connection, err := connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	l := limiter{rls.NewRateLimitServiceClient(connection), map[codes.Code]int{}}
	// A peek (0 hits) connects before the first request.
	l.mayPass("alice", 0, time.Second)
	for range 4 {
		if l.mayPass("alice", 1, deadline) {
			fmt.Println("pass")
		} else {
			fmt.Println("stop")
		}
	}
	if len(l.failures) > 0 {
		log.Print("failures: ", l.failures)
	}
}
