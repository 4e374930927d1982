import com.google.protobuf.UInt64Value;
import io.envoyproxy.envoy.extensions.common.ratelimit.v3.RateLimitDescriptor;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitRequest;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitResponse.Code;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitServiceGrpc;
import io.envoyproxy.envoy.service.ratelimit.v3.RateLimitServiceGrpc.RateLimitServiceBlockingStub;
import io.grpc.ConnectivityState;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/** Asks weir whether four requests of a user may pass: ADDRESS [DEADLINE_MS]. */
public final class Client {
  private final RateLimitServiceBlockingStub weir;
  private final Map<Status.Code, Integer> failures = new ConcurrentHashMap<>();

  private Client(ManagedChannel channel) {
    this.weir = RateLimitServiceGrpc.newBlockingStub(channel);
  }

  /** The channel of the whole process: threads share it, and it reconnects. */
  private static ManagedChannel connect(String address) {
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
        // All addresses of the name get calls.
        .defaultLoadBalancingPolicy("round_robin")
        // A ping detects a connection that hangs.
        .keepAliveTime(30, TimeUnit.SECONDS)
        .keepAliveTimeout(5, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        .build();
  }

  /** Ends the pause before a new connection every 5 s. The pauses of grpc-java reach two minutes. */
  private static void limitPauses(ManagedChannel channel, ScheduledExecutorService timer) {
    Runnable reconnect =
        () -> {
          if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
            channel.resetConnectBackoff();
          }
        };
    timer.scheduleWithFixedDelay(reconnect, 5, 5, TimeUnit.SECONDS);
  }

  /** Whether a request of a user may pass. Without a decision it passes. */
  private boolean mayPass(String user, long hits, long deadlineMs) {
    var entry = RateLimitDescriptor.Entry.newBuilder().setKey("user").setValue(user);
    var descriptor =
        RateLimitDescriptor.newBuilder().addEntries(entry).setHitsAddend(UInt64Value.of(hits));
    var request = RateLimitRequest.newBuilder().setDomain("demo").addDescriptors(descriptor);
    try {
      var stub = weir.withDeadlineAfter(deadlineMs, TimeUnit.MILLISECONDS);
      return stub.shouldRateLimit(request.build()).getOverallCode() != Code.OVER_LIMIT;
    } catch (StatusRuntimeException error) {
      failures.merge(error.getStatus().getCode(), 1, Integer::sum);
      System.err.println("no decision: " + error.getMessage());
      return true;
    }
  }

  /** Sends four requests. */
  public static void main(String[] args) throws InterruptedException {
    long deadlineMs = args.length > 1 ? Long.parseLong(args[1]) : 50;
    ManagedChannel channel = connect(args[0]);
    ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    limitPauses(channel, timer);
    Client client = new Client(channel);
    // A peek (0 hits) connects, and loads classes, before the first request.
    client.mayPass("alice", 0, 5_000);
    for (int i = 0; i < 4; i++) {
      System.out.println(client.mayPass("alice", 1, deadlineMs) ? "pass" : "stop");
    }
    if (!client.failures.isEmpty()) {
      System.err.println("failures: " + client.failures);
    }
    timer.shutdownNow();
    channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
  }
}
