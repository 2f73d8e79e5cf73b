//! The HTTP server inside a program of one's own.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use serve::{Http, Options, Service, serve};
use tokio::sync::oneshot;

use crate::{Error, Source};

/// The thread of a server, and how it ended.
type Serving = JoinHandle<Result<(), Source>>;

/// A server at work on threads of its own, with the API of `omnidraft serve`; it stops when it is
/// stopped or dropped.
pub struct Server {
    address: SocketAddr,
    /// The sender of the signal to stop, and the thread; `None` once it is stopped.
    running: Option<(oneshot::Sender<()>, Serving)>,
}

impl Server {
    /// Loads the models that `options` name and listens at the address of `http`. Returns as soon
    /// as the server accepts requests.
    ///
    /// # Errors
    /// [`Error::Serve`]: models that cannot be loaded, an address that is in use or that other
    /// machines reach without a key.
    pub fn start(options: Options, http: Http) -> Result<Self, Error> {
        let service = Service::start(options).map_err(failed)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::Builder::new().name("server".to_owned());
        let serving = move || {
            let stopped = async {
                // An error means that the server was dropped, which stops it too.
                let _ = stopped.await;
            };
            let ready = |address| {
                // An error means that `start` has given up already.
                let _ = tell.send(address);
            };
            serve(service, http, ready, stopped).map_err(Source::from)
        };
        let thread = thread.spawn(serving).map_err(failed)?;
        match told.recv() {
            Ok(address) => Ok(Self {
                address,
                running: Some((stop, thread)),
            }),
            Err(_) => Err(match join(thread) {
                Err(error) => error,
                Ok(()) => failed("it ended before it was asked anything"),
            }),
        }
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives running answers up to ten seconds to end, saves what was learnt, and stops.
    ///
    /// # Errors
    /// [`Error::Serve`]: a state that cannot be saved.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let Some((stop, thread)) = self.running.take() else {
            return Ok(());
        };
        // A server that has ended already does not receive this.
        let _ = stop.send(());
        join(thread)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever wants to know how it ended calls `stop`.
        let _ = self.end();
    }
}

fn join(thread: JoinHandle<Result<(), Source>>) -> Result<(), Error> {
    match thread.join() {
        Ok(ended) => ended.map_err(failed),
        Err(_) => Err(failed("its thread panicked")),
    }
}

fn failed(source: impl Into<Source>) -> Error {
    Error::Serve {
        source: source.into(),
    }
}
