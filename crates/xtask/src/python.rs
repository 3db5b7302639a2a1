//! The tests of the Python module, in virtual environments of their own under `target/python`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};

/// The oldest Python that the module runs on, and the oldest that the OpenHands SDK runs on.
const OLDEST: (u32, u32) = (3, 10);
const OLDEST_SDK: (u32, u32) = (3, 12);

/// The group by itself.
pub(crate) fn command() -> anyhow::Result<bool> {
    group(true).map_err(anyhow::Error::msg)?
}

/// The group `python` of the tests. Only when asked: it installs packages from PyPI.
pub(crate) fn group(is_required: bool) -> Result<anyhow::Result<bool>, String> {
    if !is_required {
        return Err("it is run by `cargo xtask python` (builds a wheel, installs from PyPI)".into());
    }
    let pythons = pythons();
    match pythons.iter().find(|(_, version)| *version >= OLDEST) {
        Some((python, _)) => {
            let sdk = pythons.iter().filter(|(_, version)| *version >= OLDEST_SDK).min_by_key(|(_, version)| *version);
            Ok(test(python, sdk.map(|(python, _)| python.as_path())))
        }
        None => Err(format!("no Python {}.{} or newer is installed", OLDEST.0, OLDEST.1)),
    }
}

/// The Pythons of this machine, the default one first.
fn pythons() -> Vec<(PathBuf, (u32, u32))> {
    let mut found: Vec<PathBuf> = ["python3", "python"].map(PathBuf::from).into();
    found.extend((OLDEST.1..30).map(|minor| PathBuf::from(format!("python3.{minor}"))));
    if let Ok(output) = Command::new("pyenv").arg("root").output() {
        let versions = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("versions");
        let entries = std::fs::read_dir(versions).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path().join("bin/python")));
    }
    found.into_iter().filter_map(|python| version(&python).map(|version| (python, version))).collect()
}

/// The version of a Python that runs and can make environments.
fn version(python: &Path) -> Option<(u32, u32)> {
    let code = "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1])";
    let output = Command::new(python).args(["-c", code]).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().split_once(' ')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// A virtual environment.
struct Environment {
    folder: PathBuf,
}

impl Environment {
    fn new(name: &str) -> Self {
        Self { folder: crate::root().join("target/python").join(name) }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
    }

    fn python(&self) -> Command {
        let mut command = Command::new(self.program("python"));
        command.current_dir(module());
        command.env("OPENHANDS_SUPPRESS_BANNER", "1").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        command
    }

    fn pip(&self) -> Command {
        let mut command = self.python();
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        command
    }

    /// Makes the environment and installs what a requirements file names, unless it is there as it should be.
    fn with(self, python: &Path, requirements: &str) -> anyhow::Result<Self> {
        let wanted = std::fs::read_to_string(module().join(requirements))?;
        let wanted = format!("{} {:?}\n{wanted}", python.display(), version(python));
        let stamp = self.folder.join("requirements.txt");
        if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            self.create(python)?;
            run(self.pip().args(["-r", requirements]), "pip install")?;
            std::fs::write(stamp, wanted)?;
        }
        Ok(self)
    }

    fn create(&self, python: &Path) -> anyhow::Result<()> {
        run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&self.folder), "python -m venv")
    }
}

fn module() -> PathBuf {
    crate::root().join("crates/python")
}

fn run(command: &mut Command, what: &str) -> anyhow::Result<()> {
    ensure!(passes(command, what)?, "{what} failed");
    Ok(())
}

fn passes(command: &mut Command, what: &str) -> anyhow::Result<bool> {
    let started = Instant::now();
    let status = command.status().with_context(|| format!("running {what}"))?;
    println!("python: {what}, {:.1} s", started.elapsed().as_secs_f64());
    Ok(status.success())
}

/// Builds a wheel, and tests it in an environment with the frameworks, in one with the OpenHands SDK, and in a bare one.
fn test(python: &Path, sdk: Option<&Path>) -> anyhow::Result<bool> {
    let core = Environment::new("core").with(python, "requirements.txt")?;
    let wheels = crate::root().join("target/python/wheels");
    if wheels.is_dir() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let mut maturin = core.python();
    maturin.args(["-m", "maturin", "build", "--quiet", "--locked", "--out"]).arg(&wheels);
    run(&mut maturin, "building the wheel")?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();

    run(core.pip().args(["--no-deps", "--force-reinstall"]).arg(&wheel), "installing the wheel")?;
    let mut is_ok = passes(core.python().args(["-m", "pytest", "tests"]), "the tests")?;
    let stubs = ["-m", "mypy.stubtest", "condenser._native", "--concise", "--mypy-config-file", "pyproject.toml"];
    is_ok &= passes(core.python().args(stubs).args(["--allowlist", "tests/stubtest.txt"]), "stubs against the module")?;
    let types = ["-m", "mypy", "examples", "python/condenser", "--exclude", "openhands"];
    is_ok &= passes(core.python().args(types), "types")?;

    match sdk {
        Some(sdk) => {
            let sdk = Environment::new("openhands").with(sdk, "requirements-openhands.txt")?;
            run(sdk.pip().args(["--no-deps", "--force-reinstall"]).arg(&wheel), "installing the wheel")?;
            is_ok &=
                passes(sdk.python().args(["-m", "pytest", "tests/openhands"]), "the tests with the OpenHands SDK")?;
            let types = ["-m", "mypy", "python/condenser/openhands.py"];
            is_ok &= passes(sdk.python().args(types), "types of the module for the SDK")?;
        }
        None => println!(
            "python: the tests with the OpenHands SDK were left out; they need Python {}.{} or newer",
            OLDEST_SDK.0, OLDEST_SDK.1
        ),
    }

    let bare = Environment::new("bare");
    bare.create(python)?;
    run(bare.pip().arg("--no-index").arg(&wheel), "installing the wheel by itself")?;
    is_ok &= passes(bare.python().args(["tests/smoke.py"]), "the wheel by itself")?;
    Ok(is_ok)
}
