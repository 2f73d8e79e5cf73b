//! A server on a free loopback port, and a client with raw sockets.

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use serve::{About, Http, LearnOptions, Limits, Options, ServeError, Service};

/// Folder of a model in the repository.
pub fn model(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("../../models").join(name)
}

/// A copy of a model of the repository that a test may change.
pub fn copy_of(name: &str, into: &Path) -> PathBuf {
    let folder = into.join(name);
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(model(name)).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    folder
}

/// Options of a server that learns nothing and keeps no state.
pub fn options() -> Options {
    Options {
        lookup_bytes: 16 << 20,
        queue: 16,
        max_tokens: 256,
        timeout: Duration::from_secs(60),
        ngram_bytes: 16 << 20,
        example_bytes: 64 << 20,
        save_every: Duration::from_secs(3600),
        ..Options::new("L", model("L"), model("D"))
    }
}

/// Options that learn from every second answer.
pub fn learning() -> LearnOptions {
    LearnOptions {
        every: 2,
        rate: Some(2e-3),
        ..LearnOptions::default()
    }
}

/// Short timeouts, so that tests of slow clients end.
pub fn limits() -> Limits {
    Limits {
        body: 64 << 10,
        timeout: Duration::from_secs(1),
        connections: 64,
    }
}

/// The error that keeps a service from starting, with its causes.
pub fn refusal(options: Options) -> String {
    let error = Service::start(options).err().expect("a refusal");
    let first: &(dyn Error + 'static) = &error;
    let chain = std::iter::successors(Some(first), |&cause| cause.source());
    let messages: Vec<String> = chain.map(|cause| cause.to_string()).collect();
    messages.join(": ")
}

/// Waits until a test is true, for at most two minutes.
pub fn until(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(120), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running server; stopped when dropped.
pub struct Server {
    pub address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Server {
    pub fn start(options: Options, api_key: Option<&str>) -> Self {
        Self::within(limits(), options, api_key)
    }

    /// A server with timeouts that suit a busy machine.
    pub fn patient(options: Options) -> Self {
        let timeout = Duration::from_secs(120);
        Self::within(
            Limits {
                timeout,
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
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
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
