package weirhttp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// fake is a client whose calls return what the function returns.
type fake func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)

func (f fake) ShouldRateLimit(ctx context.Context, request *rls.RateLimitRequest, _ ...grpc.CallOption) (*rls.RateLimitResponse, error) {
	return f(ctx, request)
}

// always is a client with one answer.
func always(answer *rls.RateLimitResponse) fake {
	return func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		return answer, nil
	}
}

func byUser(r *http.Request) []*common.RateLimitDescriptor {
	user := r.Header.Get("x-user")
	if user == "" {
		return nil
	}
	return []*common.RateLimitDescriptor{Descriptor("user", user)}
}

// serve sends a request through the limiter to a handler that answers "served".
func serve(l *Limiter, user string) *httptest.ResponseRecorder {
	l.Domain, l.Descriptors = "demo", byUser
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("served")) })
	request := httptest.NewRequest(http.MethodGet, "/", nil)
	if user != "" {
		request.Header.Set("x-user", user)
	}
	response := httptest.NewRecorder()
	l.Handler(next).ServeHTTP(response, request)
	isServed := strings.Contains(response.Body.String(), "served")
	if isServed != (response.Code == http.StatusOK) {
		panic("the handler serves the requests that pass, and no others")
	}
	return response
}

func over(reset time.Duration) *rls.RateLimitResponse_DescriptorStatus {
	return &rls.RateLimitResponse_DescriptorStatus{
		Code:               rls.RateLimitResponse_OVER_LIMIT,
		DurationUntilReset: durationpb.New(reset),
	}
}

func TestDecisions(t *testing.T) {
	ok := &rls.RateLimitResponse_DescriptorStatus{
		Code:               rls.RateLimitResponse_OK,
		DurationUntilReset: durationpb.New(time.Hour),
	}
	retry := []*core.HeaderValue{{Key: "retry-after", Value: "7"}, {Key: "x-ratelimit-limit", Value: "3"}}
	const pass, deny = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	table := []struct {
		name       string
		answer     rls.RateLimitResponse
		code       int
		retryAfter string
		limit      string
	}{
		{"passes", rls.RateLimitResponse{OverallCode: pass}, 200, "", ""},
		{"passes with headers", rls.RateLimitResponse{OverallCode: pass, ResponseHeadersToAdd: retry[1:]}, 200, "", "3"},
		{"denied with headers", rls.RateLimitResponse{OverallCode: deny, ResponseHeadersToAdd: retry}, 429, "7", "3"},
		{"longest denial", rls.RateLimitResponse{
			OverallCode: deny,
			Statuses:    []*rls.RateLimitResponse_DescriptorStatus{over(9 * time.Second), ok, over(9001 * time.Millisecond)},
		}, 429, "10", ""},
		{"without a time", rls.RateLimitResponse{OverallCode: deny}, 429, "1", ""},
	}
	for i := range table {
		row := &table[i]
		t.Run(row.name, func(t *testing.T) {
			got := serve(&Limiter{Weir: always(&row.answer)}, "alice")
			if got.Code != row.code {
				t.Errorf("status %d, not %d", got.Code, row.code)
			}
			for name, want := range map[string]string{"Retry-After": row.retryAfter, "X-Ratelimit-Limit": row.limit} {
				if value := got.Header().Get(name); value != want {
					t.Errorf("%s: %q, not %q", name, value, want)
				}
			}
		})
	}
}

func TestHeadersOfTheAnswer(t *testing.T) {
	response := serve(&Limiter{Weir: always(&rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		ResponseHeadersToAdd: []*core.HeaderValue{
			{Key: "x-a", Value: "line\r\nbreak"},
			{Key: "x-a", RawValue: []byte("\x00")},
			{Key: "x-a", RawValue: []byte("\x7f")},
			{Key: "x-a", Value: "1"},
			{Key: "x-a", RawValue: []byte("caf\xe9\t")},
			{Key: "x-a", Value: "3", RawValue: []byte("4")},
			{Key: "x-a"},
		},
	})}, "alice")
	if got, want := response.Header().Values("x-a"), []string{"1", "caf\xe9\t", "3", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestRequestOfAUser(t *testing.T) {
	var got *rls.RateLimitRequest
	weir := fake(func(ctx context.Context, request *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		got = request
		if _, has := ctx.Deadline(); !has {
			t.Error("the call has no deadline")
		}
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, nil
	})
	serve(&Limiter{Weir: weir}, "")
	if got != nil {
		t.Fatalf("a request without a user made a call: %v", got)
	}
	serve(&Limiter{Weir: weir}, "alice")
	entry := got.GetDescriptors()[0].GetEntries()[0]
	if got.GetDomain() != "demo" || entry.GetKey() != "user" || entry.GetValue() != "alice" {
		t.Errorf("%v", got)
	}
}

func TestWithoutADecision(t *testing.T) {
	down := errors.New("down")
	broken := fake(func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error) { return nil, down })
	silent := fake(func(ctx context.Context, _ *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	table := []struct {
		name string
		weir fake
		want error
	}{{"broken", broken, down}, {"silent", silent, context.DeadlineExceeded}}
	for _, row := range table {
		t.Run(row.name, func(t *testing.T) {
			if code := serve(&Limiter{Weir: row.weir}, "alice").Code; code != http.StatusOK {
				t.Errorf("status %d without OnFailure", code)
			}
			for pass, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
				var reason error
				limiter := Limiter{Weir: row.weir, OnFailure: func(_ *http.Request, err error) bool {
					reason = err
					return pass
				}}
				if code := serve(&limiter, "alice").Code; code != want {
					t.Errorf("status %d, not %d", code, want)
				}
				if !errors.Is(reason, row.want) {
					t.Errorf("reason %v, not %v", reason, row.want)
				}
			}
		})
	}
}

func TestRequestThatEndsEarly(t *testing.T) {
	// What ends the context of a request: its client, or a deadline of the server.
	ended := map[string]func() (context.Context, context.CancelFunc){
		"client":   func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) },
		"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(context.Background(), 0) },
	}
	for name, start := range ended {
		t.Run(name, func(t *testing.T) {
			gone, cancel := start()
			weir := fake(func(ctx context.Context, _ *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
				cancel()
				<-ctx.Done()
				return nil, status.FromContextError(ctx.Err()).Err()
			})
			limiter := Limiter{Weir: weir, Descriptors: byUser, Deadline: time.Hour, OnFailure: func(_ *http.Request, err error) bool {
				t.Errorf("counted as a failure of weir: %v", err)
				return true
			}}
			next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request bypassed the limit") })
			request := httptest.NewRequestWithContext(gone, http.MethodGet, "/", nil)
			request.Header.Set("x-user", "alice")
			response := httptest.NewRecorder()
			limiter.Handler(next).ServeHTTP(response, request)
			if response.Code != http.StatusServiceUnavailable {
				t.Errorf("status %d", response.Code)
			}
		})
	}
}

// connect returns a client of a weir at an address.
func connect(t *testing.T, address string) rls.RateLimitServiceClient {
	t.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return rls.NewRateLimitServiceClient(connection)
}

// tests/it/clients.rs sets WEIR, the address of a weir with the rules of examples/rules.
func TestAgainstWeir(t *testing.T) {
	address := os.Getenv("WEIR")
	if address == "" {
		t.Skip("WEIR has no address of a weir")
	}
	limiter := Limiter{Weir: connect(t, address), Deadline: 30 * time.Second, OnFailure: func(_ *http.Request, err error) bool {
		t.Errorf("no decision: %v", err)
		return true
	}}
	for i, want := range []int{200, 200, 200, 429} {
		got := serve(&limiter, "gopher")
		if got.Code != want {
			t.Errorf("request %d: status %d, not %d", i, got.Code, want)
		}
		if has := got.Header().Get("Retry-After") != ""; has != (want == 429) {
			t.Errorf("request %d: headers %v", i, got.Header())
		}
	}
}

// No process listens on port 1 of loopback.
func TestWeirIsGone(t *testing.T) {
	var reason error
	limiter := Limiter{Weir: connect(t, "127.0.0.1:1"), Deadline: 30 * time.Second, OnFailure: func(_ *http.Request, err error) bool {
		reason = err
		return true
	}}
	if code := serve(&limiter, "alice").Code; code != http.StatusOK || status.Code(reason) != codes.Unavailable {
		t.Errorf("status %d, reason %v", code, reason)
	}
}
