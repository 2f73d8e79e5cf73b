//! Starts the HTTP server inside a program, asks it once, and stops it.
//!
//! ```sh
//! cargo run --release -p omnidraft --example serve_embedded -- models/D models/L
//! ```

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let (drafter, target) = (next(format!("{MODELS}/D")), next(format!("{MODELS}/L")));

    let mut options = ServerOptions::new("mine", target, drafter);
    options.learn = Some(ServerLearning::default());
    options.max_tokens = 32;
    // Port 0 takes a free one.
    let server = Server::start(options, Http::loopback(0))?;
    println!("listening at {}", server.address());

    let question = r#"{"messages": [{"role": "user", "content": "Name a colour."}]}"#;
    let answer = ask(server.address(), "/v1/chat/completions", question)?;
    println!("{answer}");
    // Running answers get up to ten seconds to end.
    server.stop()?;
    Ok(())
}

/// Sends a request as any HTTP client does, and returns the body of the answer.
fn ask(address: SocketAddr, path: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    match head.starts_with("HTTP/1.1 200") {
        true => Ok(body.to_owned()),
        false => Err(answer.into()),
    }
}
