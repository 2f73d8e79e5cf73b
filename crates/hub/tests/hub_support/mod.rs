//! A hub that a test runs itself. It answers the few requests that downloads make, over plain HTTP.
#![allow(dead_code, reason = "every test file uses its part")]

pub mod table;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

pub const TOKEN: &str = "token-of-the-test";

/// One repository: files by name.
#[derive(Default)]
pub struct Repository {
    pub files: BTreeMap<String, Vec<u8>>,
    /// True if only requests with the token get files.
    pub gated: bool,
}

#[derive(Default)]
struct State {
    /// Repositories by `models/owner/name` or `datasets/owner/name`.
    repositories: HashMap<String, Repository>,
    /// Number of times that the body of a file is still to be cut in the middle.
    cuts: HashMap<String, usize>,
    /// Status of the answer to every request for a file, if all are to fail.
    failing: Option<u16>,
    /// Lines of the requests, with their ranges.
    requests: Vec<String>,
}

/// The hub. It lives as long as the test process.
#[derive(Clone)]
pub struct FakeHub {
    pub endpoint: String,
    state: Arc<Mutex<State>>,
}

impl FakeHub {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let hub = Self {
            endpoint,
            state: Arc::default(),
        };
        let serving = hub.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let hub = serving.clone();
                // A client that hangs up is no failure of the test.
                std::thread::spawn(move || hub.serve(stream));
            }
        });
        hub
    }

    pub fn add(&self, name: &str, repository: Repository) {
        let mut state = self.state.lock().unwrap();
        state.repositories.insert(name.to_owned(), repository);
    }

    /// Cuts the next bodies of a file in the middle.
    pub fn cut(&self, file: &str, times: usize) {
        self.state
            .lock()
            .unwrap()
            .cuts
            .insert(file.to_owned(), times);
    }

    pub fn fail_with(&self, status: Option<u16>) {
        self.state.lock().unwrap().failing = status;
    }

    /// The requests since the last call.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(n) if n > 2 => lines.push(line.trim_end().to_owned()),
                _ => break,
            }
        }
        let Some(first) = lines.first() else { return };
        let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
        let header = |name: &str| {
            lines.iter().skip(1).find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
        };
        let range = header("range");
        let start = range
            .as_deref()
            .and_then(|r| r.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
        let one_byte = range.as_deref() == Some("bytes=0-0");
        let token = header("authorization") == Some(format!("Bearer {TOKEN}"));
        self.state
            .lock()
            .unwrap()
            .requests
            .push(format!("{path} {}", range.unwrap_or_default()));
        let answer = self.answer(&path, start.unwrap_or(0), one_byte, token);
        let mut stream = reader.into_inner();
        let _ = stream.write_all(&answer).and_then(|()| stream.flush());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // Closing with unread input would reset the connection before the answer is read.
        let _ = stream.read_to_end(&mut Vec::new());
    }

    fn answer(&self, path: &str, start: usize, one_byte: bool, token: bool) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        if let Some(rest) = path.strip_prefix("/api/") {
            let name = rest.split_once("/revision/").map(|(name, _)| name);
            let Some(name) = name else {
                return status(404, "Not Found");
            };
            let Some(repository) = state.repositories.get(name) else {
                return status(401, "Unauthorized");
            };
            let siblings: Vec<_> = repository
                .files
                .iter()
                .map(|(file, bytes)| serde_json::json!({ "rfilename": file, "size": bytes.len() }))
                .collect();
            let gated = match repository.gated {
                true => serde_json::json!("manual"),
                false => serde_json::json!(false),
            };
            let body = serde_json::json!({
                "sha": commit(name),
                "siblings": siblings,
                "gated": gated,
                "safetensors": { "total": 1_000_000 },
            });
            return reply("200 OK", "", body.to_string().as_bytes());
        }
        let Some((name, rest)) = path.trim_start_matches('/').split_once("/resolve/") else {
            return status(404, "Not Found");
        };
        let name = match name.strip_prefix("datasets/") {
            Some(_) => name.to_owned(),
            None => format!("models/{name}"),
        };
        if let Some(code) = state.failing {
            return status(code, "As the test wants it");
        }
        let file = rest.split_once('/').map_or("", |(_, file)| file);
        let Some(repository) = state.repositories.get(&name) else {
            return status(404, "Not Found");
        };
        if repository.gated && !token {
            return status(401, "Unauthorized");
        }
        let Some(content) = repository.files.get(file).cloned() else {
            return status(404, "Not Found");
        };
        if start > 0 && start >= content.len() {
            return status(416, "Range Not Satisfiable");
        }
        let end = if one_byte { 1 } else { content.len() };
        let headers = format!(
            "etag: \"{}\"\r\nx-repo-commit: {}\r\ncontent-range: bytes {start}-{}/{}\r\n",
            hex(&Sha256::digest(&content)),
            commit(&name),
            end.saturating_sub(1),
            content.len(),
        );
        let whole = reply("206 Partial Content", &headers, &content[start..end]);
        match state.cuts.get_mut(file) {
            Some(times) if *times > 0 && !one_byte => {
                *times -= 1;
                let sent = whole.len() - (end - start).div_ceil(2);
                whole[..sent].to_vec()
            }
            _ => whole,
        }
    }
}

/// The only commit a repository has.
pub fn commit(name: &str) -> String {
    hex(&Sha256::digest(name))[..40].to_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn status(code: u16, reason: &str) -> Vec<u8> {
    reply(&format!("{code} {reason}"), "", b"")
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    )
    .into_bytes();
    bytes.extend(body);
    bytes
}

impl Repository {
    /// The repository with one more file.
    pub fn with(mut self, name: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.insert(name.to_owned(), content.into());
        self
    }

    pub fn gated(mut self) -> Self {
        self.gated = true;
        self
    }
}
