# The program alone; models, experiments and results stay outside and are mounted (docs/install.md).

# The compiler of rust-toolchain.toml. That file stays out of the build, or rustup would fetch rustfmt and clippy too.
FROM rust:1.95.0-slim-trixie AS build
WORKDIR /src
COPY . .
# Without the history, manifests of runs say that the commit is unknown.
RUN cargo build --release --locked -p runner

# The same Debian as above: the program is linked against its C library, and needs nothing else.
FROM debian:trixie-slim
RUN useradd --create-home --uid 10001 omnidraft
COPY --from=build /src/target/release/omnidraft /usr/local/bin/omnidraft
USER 10001
WORKDIR /home/omnidraft
# The server's port. It listens on loopback unless --host says otherwise, and that takes a key.
EXPOSE 8666
ENTRYPOINT ["omnidraft"]
CMD ["--help"]
