# weir in an image without a shell: one binary, the C library, the system's authorities.
#
#   docker build -t weir --build-arg REVISION="$(git rev-parse HEAD)" .
#   docker run -p 8081:8081 -v "$PWD/examples/rules:/rules" weir serve --rules /rules
#
# Under its second name, /bin/ratelimit, the binary replaces the image of envoyproxy/ratelimit:
# docs/start/migration.md.
#
# .ci/release/image.sh builds the image of a release, for amd64 or arm64, with the time of the commit.
#
# Base images have the digest of their index, which lists all platforms. Dependabot renews the digests each
# week (it reads FROM lines, but no ARG). By hand: `docker buildx imagetools inspect rust:1.95-bookworm`.

FROM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
ARG TARGETARCH
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
# jemalloc aborts where pages are larger than its own. Linux on arm64 has pages of 4, 16 or 64 KiB.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,id=weir-target-$TARGETARCH,target=/weir/target \
    if [ "$TARGETARCH" = arm64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi \
    && cargo build --locked --release --bin weir \
    && install -D target/release/weir /image/bin/weir \
    && ln -s weir /image/bin/ratelimit

# The binary alone, for the archives of a release: `docker buildx build --target binary --output FOLDER .`
FROM scratch AS binary
COPY --from=build /image/bin/weir /

# Debian 13. The C library of the builder, Debian 12, is older, so the binary also runs on older systems.
FROM gcr.io/distroless/cc-debian13:nonroot@sha256:e792ab3d241a468a4fd7519ddbbebe66b49b5f365771716ea688ad40b6c6f1c2
ARG VERSION=0.1.0
ARG REVISION=unknown
# With --sbom, the list of parts also has the crates of Cargo.lock. A stripped binary does not name them.
ARG BUILDKIT_SBOM_SCAN_CONTEXT=true
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="A rate-limit decision service for Envoy, Istio and Envoy Gateway. It keeps deciding while Redis fails." \
      org.opencontainers.image.url="https://github.com/weir-rs/weir" \
      org.opencontainers.image.source="https://github.com/weir-rs/weir" \
      org.opencontainers.image.documentation="https://github.com/weir-rs/weir/blob/main/docs/README.md" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/bin/ /bin/
# A number, so that Kubernetes can verify runAsNonRoot; 65534 is what other charts use.
USER 65534:65534
EXPOSE 8081 8080
# For container engines; Kubernetes ignores it. Fails during a drain, like /healthcheck. It finds the port by the
# environment, as weir does. A settings file with another port needs `weir health --config FILE`.
HEALTHCHECK --interval=10s --timeout=2s --start-period=10s CMD ["/bin/weir", "health"]
ENTRYPOINT ["/bin/weir"]
CMD ["serve"]
