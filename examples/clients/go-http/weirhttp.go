// Package weirhttp limits the requests of a net/http server by the decisions of weir.
package weirhttp

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// DefaultDeadline is the deadline of a call if a Limiter has none.
const DefaultDeadline = 50 * time.Millisecond

// Limiter asks weir before a handler serves a request. Its fields must not change while it is used.
type Limiter struct {
	// Weir is a client of the connection that the whole process shares.
	Weir rls.RateLimitServiceClient
	// Domain is the domain of the rules.
	Domain string
	// Descriptors returns the descriptors of a request. A request without one passes, without a call.
	Descriptors func(*http.Request) []*common.RateLimitDescriptor
	// Deadline limits a call; 0 means DefaultDeadline.
	Deadline time.Duration
	// OnFailure decides a request if weir did not: it passes, or it gets status 503. The error has the
	// reason, which should be counted. nil: all pass.
	OnFailure func(*http.Request, error) (pass bool)
}

// Descriptor returns a descriptor with one entry. Each further entry is appended to its Entries.
func Descriptor(key, value string) *common.RateLimitDescriptor {
	entry := &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{entry}}
}

// Handler serves a request by next if it may pass. A denied request gets status 429. A request that ends before
// the decision, because its client has gone, is not served.
//
// The headers of weir's answer that HTTP permits are added to both responses. A denial has retry-after in any case.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		descriptors := l.Descriptors(r)
		if len(descriptors) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		answer, err := l.ask(r.Context(), descriptors)
		if err != nil {
			// The client has gone, or a deadline of the request has passed. That is no failure of weir, so it
			// must not let the request pass.
			if r.Context().Err() != nil {
				http.Error(w, "no rate limit decision", http.StatusServiceUnavailable)
				return
			}
			if l.OnFailure != nil && !l.OnFailure(r, err) {
				http.Error(w, "no rate limit decision", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		for _, header := range answer.GetResponseHeadersToAdd() {
			value := header.GetValue()
			if value == "" {
				value = string(header.GetRawValue())
			}
			if isPermitted(value) {
				w.Header().Add(header.GetKey(), value)
			}
		}
		if answer.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
			next.ServeHTTP(w, r)
			return
		}
		if w.Header().Get("Retry-After") == "" {
			w.Header().Set("Retry-After", retryAfter(answer))
		}
		http.Error(w, "rate limit exceeded", http.StatusTooManyRequests)
	})
}

func (l *Limiter) ask(ctx context.Context, descriptors []*common.RateLimitDescriptor) (*rls.RateLimitResponse, error) {
	deadline := l.Deadline
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	return l.Weir.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: l.Domain, Descriptors: descriptors})
}

// isPermitted says whether HTTP permits the value of a header. net/http leaves out names that it does not permit.
func isPermitted(value string) bool {
	for i := 0; i < len(value); i++ {
		if b := value[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// retryAfter is the number of seconds until the longest denial ends, at least 1.
func retryAfter(answer *rls.RateLimitResponse) string {
	seconds := 1.0
	for _, status := range answer.GetStatuses() {
		if status.GetCode() == rls.RateLimitResponse_OVER_LIMIT {
			reset := status.GetDurationUntilReset().AsDuration()
			seconds = max(seconds, math.Ceil(reset.Seconds()))
		}
	}
	return strconv.FormatFloat(seconds, 'f', 0, 64)
}
