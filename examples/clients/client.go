// Asks weir whether requests of a user may pass: client ADDRESS
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const timeout = 100 * time.Millisecond

func mayPass(weir rls.RateLimitServiceClient, user string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	entries := []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}}
	response, err := weir.ShouldRateLimit(ctx, &rls.RateLimitRequest{
		Domain:      "demo",
		Descriptors: []*common.RateLimitDescriptor{{Entries: entries}},
	})
	if err != nil {
		// No decision. This program lets the request pass.
		log.Print(err)
		return true
	}
	return response.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT
}

func main() {
	// One connection for the whole process: goroutines can share it, and it reconnects by itself.
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient(os.Args[1], credentials)
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	weir := rls.NewRateLimitServiceClient(connection)
	for i := 0; i < 4; i++ {
		if mayPass(weir, "alice") {
			fmt.Println("pass")
		} else {
			fmt.Println("stop")
		}
	}
}
