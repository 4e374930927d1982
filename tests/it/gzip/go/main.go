// Sends one compressed ShouldRateLimit call and prints the response in hexadecimal.
//
// usage: grpc-go ADDRESS REQUEST, with the request as the bytes of its message in hexadecimal
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
)

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string                        { return "proto" }
func (raw) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }
func (raw) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func main() {
	request, err := hex.DecodeString(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	client, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var response []byte
	options := []grpc.CallOption{grpc.UseCompressor(gzip.Name), grpc.ForceCodec(raw{})}
	if err := client.Invoke(ctx, method, &request, &response, options...); err != nil {
		log.Fatal(err)
	}
	fmt.Println(hex.EncodeToString(response))
}
