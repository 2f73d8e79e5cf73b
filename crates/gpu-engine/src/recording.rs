//! Launches recorded once and replayed.
#![expect(unsafe_code, reason = "a replay trusts that its buffers are alive")]

use std::collections::HashMap;

use cubecl::client::Graph;
use cubecl::prelude::*;

use crate::device::{GpuError, failed};

/// Number of rows, number of blocks of the cache, and true if logits are computed.
type Key = (usize, usize, bool);

/// The recordings of an engine. They name its buffers, so they must be cleared before one of these
/// is replaced.
#[derive(Default)]
pub(crate) struct Recordings {
    graphs: HashMap<Key, Graph>,
    /// True if the device cannot record.
    refused: bool,
}

impl Recordings {
    /// Drops all recordings.
    pub(crate) fn clear(&mut self) {
        self.graphs.clear();
    }

    /// Replays the recording of `key`, or runs `launch` and records it for the next time.
    pub(crate) fn run(
        &mut self,
        key: Key,
        client: &Client,
        launch: impl Fn(),
    ) -> Result<(), GpuError> {
        if let Some(graph) = self.graphs.get(&key) {
            // SAFETY: the buffers belong to the engine, which clears the recordings before it drops
            // one.
            return unsafe { graph.replay() }.map_err(failed);
        }
        if self.refused || client.graph_prepare().is_err() {
            self.refused = true;
            launch();
            return Ok(());
        }
        // This call runs; the next one is recorded without running.
        launch();
        let recorded = client.start_capture().and_then(|()| {
            launch();
            client.stop_capture()
        });
        match recorded {
            Ok(graph) => {
                self.graphs.insert(key, graph);
            }
            Err(_) => self.refused = true,
        }
        Ok(())
    }
}
