//! A server on a free loopback port, and a client with raw sockets.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use lm::{EngineSettings, WeightType};
use serde_json::Value;
use serve::{About, Http, LearnOptions, LearnScope, Limits, Options, RemoteOptions, Service};

/// Folder of a model in the repository.
pub fn model(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../models").join(name)
}

/// Options of a server that learns nothing and keeps no state.
pub fn options() -> Options {
    Options {
        targets: vec![("L".into(), model("L"))],
        drafter: model("D"),
        engine: EngineSettings::new(WeightType::F32, 1),
        draft_weights: None,
        draft_length: 4,
        adapt_length: false,
        controller: false,
        lookup: None,
        lookup_bytes: 16 << 20,
        parallel: 4,
        queue: 16,
        max_tokens: 256,
        timeout: Duration::from_secs(60),
        memory: None,
        ngram_bytes: 16 << 20,
        example_bytes: 64 << 20,
        learn: None,
        state: None,
        save_every: Duration::from_secs(3600),
        state_bytes: 1 << 30,
        remote: RemoteOptions::default(),
        expose: None,
    }
}

/// Options that learn from every second answer.
pub fn learning() -> LearnOptions {
    LearnOptions {
        every: 2,
        rate: Some(2e-3),
        rank: 0,
        blocks: None,
        updates_per_minute: None,
        scope: LearnScope::Target,
    }
}

/// Short timeouts, so that tests of slow clients end.
pub fn limits() -> Limits {
    Limits {
        body: 64 << 10,
        patience: Duration::from_secs(1),
        connections: 64,
    }
}

/// A running server; stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Server {
    pub fn start(options: Options, api_key: Option<&str>) -> Self {
        Self::within(limits(), options, api_key)
    }

    /// A server with timeouts that suit a busy machine.
    pub fn patient(options: Options) -> Self {
        let patience = Duration::from_secs(120);
        Self::within(
            Limits {
                patience,
                ..limits()
            },
            options,
            None,
        )
    }

    fn within(limits: Limits, options: Options, api_key: Option<&str>) -> Self {
        let http = Http {
            address: "127.0.0.1:0".parse().unwrap(),
            api_key: api_key.map(str::to_owned),
            limits,
            origins: vec!["http://localhost:3000".to_owned()],
            about: About {
                version: "1.2.3".to_owned(),
                commit: "0123456789".to_owned(),
                machine: "2 x \"Example\" CPU".to_owned(),
            },
        };
        let service = Service::start(options).expect("a service");
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (tell, ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let stopped = async {
                let _ = stopped.await;
            };
            serve::serve(
                service,
                http,
                |address| tell.send(address).unwrap(),
                stopped,
            )
        });
        Self {
            address: ready.recv().expect("an address"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Sends bytes as they are; returns everything that is received until the server closes.
    pub fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        // The server may have answered and closed before all of it was sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    /// Status and body of a reply.
    pub fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            self.address,
            body.len()
        );
        let answer = self.raw(&[head.as_bytes(), body.as_bytes()].concat());
        parsed(&answer)
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.send("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.send("POST", path, JSON, &body.to_string());
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// The `data:` lines of a streamed answer.
    pub fn stream(&self, path: &str, body: &Value) -> Vec<String> {
        let (status, text) = self.send("POST", path, JSON, &body.to_string());
        assert_eq!(status, 200, "{text}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }

    /// Value of a metric of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |number| number.parse().unwrap())
    }

    /// Stops the server and returns its result.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        match self.thread.take() {
            Some(thread) => thread.join().expect("the server did not panic"),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.end();
        if !std::thread::panicking() {
            ended.expect("the server ended well");
        }
    }
}

pub const JSON: &str = "content-type: application/json\r\n";

/// Status and body of an answer; a chunked body is joined.
pub fn parsed(answer: &[u8]) -> (u16, String) {
    let mut reader = BufReader::new(answer);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let mut chunked = false;
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        chunked |= line
            .to_ascii_lowercase()
            .starts_with("transfer-encoding: chunked");
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            if size == 0 {
                break;
            }
            let mut chunk = vec![0; size + 2];
            if reader.read_exact(&mut chunk).is_err() {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    } else {
        reader.read_to_end(&mut body).unwrap();
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    (status.unwrap_or(0), body)
}
