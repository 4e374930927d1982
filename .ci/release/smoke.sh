#!/bin/sh
# Starts a build with examples/rules, and sends calls until a rule denies one.
#
# Usage: smoke.sh WEIR [IMAGE]
#
# Starts the binary WEIR, or a container of IMAGE, which WEIR then calls. A container has to report its health.
set -eu
weir=$(realpath "$1") image=${2:-}
cd "$(dirname "$0")/../.."
work=$(mktemp -d)

if [ -n "$image" ]; then
    container=$(docker run --detach --publish 127.0.0.1:8081:8081 --volume "$PWD/examples/rules:/rules:ro" \
        "$image" serve --rules /rules)
    trap 'docker logs "$container" >&2; docker rm --force "$container" >&2; rm -rf "$work"' EXIT
    is_up() {
        [ "$(docker inspect --format '{{.State.Health.Status}}' "$container")" = healthy ]
    }
else
    "$weir" serve --rules examples/rules > "$work/log" 2>&1 &
    process=$!
    # `|| true`: a weir that ends by the signal does not change the result.
    trap 'kill "$process" 2>/dev/null && wait "$process" || true; cat "$work/log" >&2; rm -rf "$work"' EXIT
    is_up() {
        # Not another weir on this machine.
        kill -0 "$process" && "$weir" health >/dev/null 2>&1
    }
fi

attempts=60
until is_up; do
    attempts=$((attempts - 1))
    [ "$attempts" -gt 0 ] || {
        echo "smoke.sh: weir is not up after a minute" >&2
        exit 1
    }
    sleep 1
done

# Three per minute. A window may end meanwhile, so the second of two rounds has a denial at the latest.
for call in 1 2 3 4 5 6 7 8; do
    status=0
    "$weir" call --domain demo user=smoke > "$work/answer" || status=$?
    cat "$work/answer"
    case $status in
        0) ;;
        1)
            [ "$call" -gt 3 ] || { echo "smoke.sh: call $call was denied" >&2; exit 1; }
            echo "smoke.sh: call $call was denied, as it has to be"
            exit 0
            ;;
        *) exit "$status" ;;
    esac
done
echo "smoke.sh: no call was denied" >&2
exit 1
