//! The binary `rekindle`: durable agent work on the command line. It reads the arguments, the
//! environment and the configuration, and calls `rekindle::operations`; what it adds is words.

mod app;
mod cli;
mod clock;
mod commands;
mod complete;
mod exit;
mod failure;
mod files;
mod key_service;
mod owner;
mod reference;
mod run;
mod secrets;
mod settings;
mod trust;
mod ui;
mod words;

use std::process::ExitCode;

/// Servers and workers allocate and free on all threads at once.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: rekindle_fuzz::Counting = rekindle_fuzz::Counting;

/// Keys and other secrets are in the memory and the environment of this process: the tools it starts, and others
/// of the same user, can neither read them through `/proc` nor make it write a core file. Programs that it starts
/// are as they would be otherwise.
fn close_to_others() {
    #[cfg(target_os = "linux")]
    {
        // A kernel without it leaves things as they are everywhere else.
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    #[cfg(not(target_os = "linux"))]
    {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
        let none = rustix::process::Rlimit { current: Some(0), ..limit };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    }
}

fn main() -> ExitCode {
    close_to_others();
    cli::answer_completions();
    let cli = cli::parse();
    let ui = ui::Ui::new(&cli.global);
    let exit = match app::start(cli, ui.clone()) {
        Ok(exit) => exit,
        Err(failure) => failure.tell(&ui),
    };
    exit.into()
}
