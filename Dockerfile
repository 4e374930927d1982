# weir in an image without a shell: one binary, the C library, the system's authorities.
#
#   docker build -t weir .
#   docker run -p 8081:8081 -v "$PWD/examples/rules:/rules" weir serve --rules /rules
#
# Under its second name, /bin/ratelimit, the binary replaces the image of envoyproxy/ratelimit:
# docs/migration.md.

FROM rust:1.95-bookworm AS build
WORKDIR /weir
# Only the input of the build, so that a changed page or test does not rebuild anything.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY proto proto
COPY lua lua
COPY benches benches
COPY crates crates
COPY src src
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/weir/target \
    cargo build --locked --release --bin weir \
    && install -D target/release/weir /image/bin/weir \
    && ln -s weir /image/bin/ratelimit

# The same Debian release as the builder, because the binary needs its C library.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A rate-limit decision service for Envoy, Istio and Envoy Gateway that always answers" \
      org.opencontainers.image.source="https://github.com/weir-rs/weir" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image/bin/ /bin/
# A number, so that Kubernetes can verify runAsNonRoot; 65534 is what other charts use.
USER 65534:65534
EXPOSE 8081 8080
ENTRYPOINT ["/bin/weir"]
CMD ["serve"]
