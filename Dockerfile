# An image with nothing but the static binary, built from these sources: podman build -t colors .
# packaging/dist makes the same image of a binary that it has already, without podman; .ci/container compares the two.
ARG RUST=docker.io/library/rust:1-bookworm
FROM ${RUST} AS build
WORKDIR /source
COPY . .
RUN RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --release --target "$(rustc --print host-tuple)" && \
    mv target/*/release/colors /colors

FROM scratch
COPY --from=build --chmod=755 /colors /colors
# the licenses of everything in it
COPY packaging/debian/copyright /copyright
# no image has to agree on this number, and no file of a host belongs to it
USER 65532:65532
# made by the user above, so a volume that starts as a copy of it can be written
WORKDIR /data
VOLUME /data
# variables, so that options at the end of the run command add to them; this address is all of IPv4, too
ENV COLORS_LISTEN=[::]:8080 COLORS_DATA=/data/colors.db
EXPOSE 8080
# asks where the variables say that the service listens; podman builds it only into images of this format: --format docker
HEALTHCHECK CMD ["/colors", "--health"]
ENTRYPOINT ["/colors"]
