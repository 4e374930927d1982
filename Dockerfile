# weir in an image without a shell: one binary, the C library, the system's authorities.
#
#   docker build -t weir --build-arg REVISION="$(git rev-parse HEAD)" .
#   docker run -p 8081:8081 -v "$PWD/examples/rules:/rules" weir serve --rules /rules
#
# Under its second name, /bin/ratelimit, the binary replaces the image of envoyproxy/ratelimit:
# docs/start/migration.md. Images are tested on amd64 only.
#
# To pin a base image, append its digest: `docker buildx imagetools inspect rust:1.95-bookworm` shows it,
# and the line becomes `FROM rust:1.95-bookworm@sha256:... AS build`.

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
COPY ui ui
# Without line tables, the binary is a fifth of its size. Panics name their line in any case.
ENV CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/weir/target \
    cargo build --locked --release --bin weir \
    && install -D target/release/weir /image/bin/weir \
    && ln -s weir /image/bin/ratelimit

# The same Debian release as the builder, because the binary needs its C library.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A rate-limit decision service for Envoy, Istio and Envoy Gateway. It keeps deciding while Redis fails." \
      org.opencontainers.image.source="https://github.com/weir-rs/weir" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/bin/ /bin/
# A number, so that Kubernetes can verify runAsNonRoot; 65534 is what other charts use.
USER 65534:65534
EXPOSE 8081 8080
# For container engines; Kubernetes ignores it. Fails during a drain, like /healthcheck.
HEALTHCHECK --interval=10s --timeout=2s --start-period=10s CMD ["/bin/weir", "health"]
ENTRYPOINT ["/bin/weir"]
CMD ["serve"]
