//! A terminal of its own for a process, so that it can be watched as a person would.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::Winsize;

/// A process on a terminal.
pub struct Watched {
    pub child: Child,
    keyboard: Option<File>,
    screen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Watched {
    /// Starts `command` on a terminal with so many columns.
    pub fn start(mut command: Command, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let end = || slave.try_clone().unwrap();
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop((command, slave));
        let master = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut reading, seen) = (master.try_clone().unwrap(), Arc::clone(&screen));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error means that nobody holds the other end any more.
            while let Ok(count @ 1..) = reading.read(&mut bytes) {
                seen.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keyboard: Some(master), screen, reader: Some(reader) }
    }

    /// What was shown so far.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        self.keyboard.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the end: the exit status and everything that was shown.
    pub fn end(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        self.keyboard = None;
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        (code, self.screen())
    }
}
