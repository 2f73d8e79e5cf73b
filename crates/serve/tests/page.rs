//! The page, driven in headless Chromium if that is installed.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::*;

/// A browser with one page, controlled over the DevTools protocol.
struct Browser {
    child: Child,
    socket: BufReader<TcpStream>,
    calls: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` if there is no Chromium.
    fn open(url: &str) -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("chromium")
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-port=0",
            ])
            .args(["--disable-dev-shm-usage", "--window-size=1100,820"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = BufReader::new(child.stderr.take()?);
        let mut line = String::new();
        let port = loop {
            line.clear();
            if said.read_line(&mut line).ok()? == 0 {
                let _ = child.wait();
                return None;
            }
            if let Some((_, rest)) = line.split_once("ws://127.0.0.1:") {
                break rest.split('/').next()?.to_owned();
            }
        };
        // The output is read so that the browser is not blocked.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let path = page_socket(&port, url);
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let handshake = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(handshake.as_bytes()).unwrap();
        let mut socket = BufReader::new(stream);
        loop {
            line.clear();
            socket.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
        }
        Some(Self {
            child,
            socket,
            calls: 0,
            _profile: profile,
        })
    }

    /// A frame of text, with a mask of zeros.
    fn send(&mut self, text: &str) {
        let mut frame = vec![0x81];
        match text.len() {
            n @ 0..126 => frame.push(0x80 | n as u8),
            n => {
                frame.push(0x80 | 126);
                frame.extend((n as u16).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.socket.get_mut().write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut bytes = |n: usize| {
            let mut buffer = vec![0; n];
            self.socket.read_exact(&mut buffer).unwrap();
            buffer
        };
        let head = bytes(2);
        let length = match head[1] & 0x7f {
            126 => usize::from(u16::from_be_bytes(bytes(2).try_into().unwrap())),
            127 => u64::from_be_bytes(bytes(8).try_into().unwrap()) as usize,
            n => usize::from(n),
        };
        serde_json::from_slice(&bytes(length)).unwrap_or(Value::Null)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({"id": id, "method": method, "params": params}).to_string());
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    /// The value of an expression on the page.
    fn value(&mut self, expression: &str) -> Value {
        let result = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true}),
        );
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    fn wait(&mut self, condition: &str) {
        let clock = Instant::now();
        while self.value(condition) != json!(true) {
            assert!(clock.elapsed() < Duration::from_secs(90), "{condition}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of the page's socket, once the browser has opened it.
fn page_socket(port: &str, url: &str) -> String {
    let clock = Instant::now();
    loop {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        let request = format!(
            "GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let body = answered(stream).unwrap_or_default();
        let pages: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let found = pages.as_array().into_iter().flatten();
        let mut found =
            found.filter(|page| page["url"].as_str().is_some_and(|u| u.starts_with(url)));
        if let Some(socket) = found.find_map(|page| page["webSocketDebuggerUrl"].as_str()) {
            let (_, path) = socket.split_once(port).unwrap();
            return path.to_owned();
        }
        assert!(
            clock.elapsed() < Duration::from_secs(60),
            "no page was opened"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The body of an answer whose connection stays open.
fn answered(stream: TcpStream) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(body)
}

#[test]
fn the_page_chats() {
    let options = serve::Options {
        learn: Some(learning()),
        ..options()
    };
    let server = Server::start(options, None);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.address)) else {
        eprintln!("skipped: there is no chromium");
        return;
    };
    browser.wait("document.querySelector('#model option') !== null");
    let say = |browser: &mut Browser, text: &str, answers: u64| {
        let text = json!(text);
        browser.value(&format!(
            "at('prompt').value = {text}; at('form').requestSubmit(); true"
        ));
        browser.wait(&format!("document.body.dataset.answers === '{answers}'"));
    };
    say(&mut browser, "Give three tips for staying healthy.", 1);
    say(&mut browser, "Add 2 and 3.", 2);
    // The page shows the tokens of the answer.
    let shown = "messages[1].content === [...document.querySelectorAll('.turn')[1].childNodes].slice(1).map((n) => n.textContent).join('')";
    assert_eq!(browser.value(shown), json!(true));
    assert_eq!(browser.value("messages.length"), json!(4));
    let coloured =
        browser.value("document.querySelectorAll('.turn .drafted, .turn .ngram').length");
    assert!(coloured.as_u64().unwrap() > 0);
    let accepted = browser.value("at('last').rows[1].cells[1].textContent");
    assert_ne!(accepted, json!("0 / 0"));

    browser.value("at('drafter').checked = false; at('most').value = 7; true");
    say(&mut browser, "Say hello.", 3);
    let tokens = browser.value("Number(at('last').rows[0].cells[1].textContent)");
    assert!((1..=7).contains(&tokens.as_u64().unwrap()), "{tokens}");
    assert_eq!(
        browser.value("at('last').rows[1].cells[1].textContent"),
        json!("0 / 0")
    );
    assert_eq!(
        browser.value("document.querySelectorAll('.error').length"),
        json!(0)
    );
    // Two answers with the drafter, and one without.
    browser.wait("at('all').rows[0].cells[1].textContent === '2'");
    // Only accepted drafts are marked.
    let plain = "[...document.querySelectorAll('.turn .corrected, .turn .target')].every((span) => getComputedStyle(span).backgroundColor === 'rgba(0, 0, 0, 0)')";
    assert_eq!(browser.value(plain), json!(true));
    if let Some(path) = std::env::var_os("OMNIDRAFT_SCREENSHOT") {
        let picture = browser.call("Page.captureScreenshot", json!({"format": "png"}));
        let text = picture["data"].as_str().unwrap();
        std::fs::write(path, base64(text)).unwrap();
    }
    browser.value("at('reset').click(); true");
    assert_eq!(
        browser.value("document.querySelectorAll('.turn').length"),
        json!(0)
    );
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let kept = group.iter().take_while(|c| **c != b'=');
        let kept: Vec<u8> = kept.map(|c| digit(*c)).collect();
        let word = kept.iter().fold(0_u32, |word, d| word << 6 | u32::from(*d));
        let word = word << (6 * (4 - kept.len()));
        bytes.extend_from_slice(&word.to_be_bytes()[1..kept.len()]);
    }
    bytes
}
