//! Listeners: a port, or a socket of this machine.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

use crate::access::Place;
use crate::crowd::Source;

/// A port or a socket that is listened on.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener, SocketAddr),
    #[cfg(unix)]
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn on_port(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self::Tcp(listener, address))
    }

    #[cfg(not(unix))]
    pub(crate) async fn on_socket(_path: &Path) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Listens on a socket with mode 0600. Between its creation and its mode others may connect: that they are
    /// others is known of every connection.
    #[cfg(unix)]
    pub(crate) async fn on_socket(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        remove_dead(path).await?;
        let listener = UnixListener::bind(path)?;
        let file = SocketFile(std::path::absolute(path)?);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self::Unix { listener, _file: file })
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Self::Tcp(_, address) => Place::Port(*address),
            #[cfg(unix)]
            Self::Unix { .. } => Place::Socket,
        }
    }

    /// The next connection, where it comes from, and of a socket the user at the other end.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, Source, Option<u32>)> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Stream::Tcp(stream), Source::address(peer.ip()), None))
            }
            #[cfg(unix)]
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let uid = stream.peer_cred()?.uid();
                Ok((Stream::Unix(stream), Source::User(uid), Some(uid)))
            }
        }
    }
}

/// The name of a socket; removed with its listener.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes the socket of a server that is gone. Anything else at that path stays.
#[cfg(unix)]
async fn remove_dead(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt as _;
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else at that path"))
        }
        Ok(_) => match UnixStream::connect(path).await {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Err(error) => Err(error),
        },
    }
}
