//! An export on one side, an import on the other, and little memory between them. Nothing of a
//! session stands in a file on the way.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rekindle::operations::{self, Moved};
use rekindle::{Engine, Error, ErrorKind, ImportOptions, SessionKey};

use crate::files::Counted;

/// How much is handed over at once, and how often before the other side must read.
const CHUNK: usize = 64 << 10;
const AHEAD: usize = 8;

/// Copies a session; what was moved, and how many bytes.
pub async fn copy(
    from: &Engine,
    to: &Engine,
    session: &SessionKey,
    options: ImportOptions,
) -> Result<(Moved, u64), Error> {
    let (sender, receiver) = sync_channel(AHEAD);
    let (source, key) = (from.clone(), session.clone());
    let handle = tokio::runtime::Handle::current();
    // Both sides wait for each other, so each has a thread.
    let exporting = tokio::task::spawn_blocking(move || {
        let mut writer = Counted::new(io::BufWriter::with_capacity(CHUNK, Sending(sender)));
        let exported = handle.block_on(operations::export(&source, &key, &mut writer));
        exported.map(|_| writer.bytes)
    });
    let (target, handle) = (to.clone(), tokio::runtime::Handle::current());
    let importing = tokio::task::spawn_blocking(move || {
        let mut reader = Receiving { from: receiver, chunk: Vec::new(), read: 0 };
        handle.block_on(operations::import(&target, &mut reader, &options))
    });
    let (exported, imported) = (exporting.await.map_err(stopped)?, importing.await.map_err(stopped)?);
    match (exported, imported) {
        (Ok(bytes), Ok(moved)) => Ok((moved, bytes)),
        // If the import fails, the export finds nobody who reads; that is no news.
        (Err(error), _) if !is_closed(&error) => Err(error),
        (_, Err(error)) => Err(error),
        (Err(error), Ok(_)) => Err(error),
    }
}

fn stopped(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Closed, "one side of the copy stopped").because(error)
}

fn is_closed(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| source.kind() == io::ErrorKind::BrokenPipe)
}

struct Sending(SyncSender<Vec<u8>>);

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Receiving {
    from: Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    read: usize,
}

impl BufRead for Receiving {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.read == self.chunk.len() {
            // Nobody sends any more: the end.
            self.chunk = self.from.recv().unwrap_or_default();
            self.read = 0;
        }
        Ok(&self.chunk[self.read..])
    }

    fn consume(&mut self, bytes: usize) {
        self.read = (self.read + bytes).min(self.chunk.len());
    }
}

impl Read for Receiving {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let bytes = ready.len().min(into.len());
        into[..bytes].copy_from_slice(&ready[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}
