//! Builds the model's two libraries with the C++ compiler: a driver and an NVRTC that the CUDA device opens in the place of
//! the real ones. Shared by the tests and by `cargo xtask model`, so it uses nothing but the standard library.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Every source of the driver.
const DRIVER: [&str; 14] = [
    "accesses",
    "block",
    "clock",
    "completion",
    "device",
    "driver",
    "fiber",
    "launch",
    "module",
    "rounding",
    "schedule",
    "shared",
    "trace",
    "warp",
];

/// The model, built.
#[derive(Debug, Clone)]
pub struct Model {
    folder: PathBuf,
}

impl Model {
    /// Builds what is not there yet, in a folder below `target` whose name changes with the sources.
    ///
    /// # Errors
    /// What the compiler says; [`None`] inside where there is no compiler.
    pub fn build(root: &Path, target: &Path) -> Result<Model, Option<String>> {
        let compiler = env::var("CXX").unwrap_or_else(|_| "g++".into());
        match Command::new(&compiler).arg("--version").output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(None),
            Err(error) => return Err(Some(format!("{compiler}: {error}"))),
            Ok(_) => {}
        }
        let sources = root.join("tests/cuda_model");
        let folder = target.join("cuda_model").join(hash(&sources, root).map_err(|error| Some(error.to_string()))?);
        for below in ["kernels", "cache"] {
            fs::create_dir_all(folder.join(below)).map_err(|error| Some(format!("{}: {error}", folder.display())))?;
        }
        let model = Model { folder };
        let files: Vec<PathBuf> = DRIVER.iter().map(|name| sources.join(format!("{name}.cpp"))).collect();
        model.library(&compiler, "libcuda.so.1", &files, root)?;
        model.library(&compiler, "libnvrtc.so.13", &[sources.join("nvrtc.cpp")], root)?;
        Ok(model)
    }

    /// The variables under which the CUDA device and the model find each other.
    pub fn environment(&self) -> [(&'static str, PathBuf); 4] {
        [
            ("SAMEDRAW_CUDA_DRIVER", self.folder.join("libcuda.so.1")),
            ("SAMEDRAW_NVRTC", self.folder.join("libnvrtc.so.13")),
            ("SAMEDRAW_CACHE_DIR", self.folder.join("cache")),
            ("SAMEDRAW_MODEL_DIR", self.folder.join("kernels")),
        ]
    }

    fn library(&self, compiler: &str, name: &str, files: &[PathBuf], root: &Path) -> Result<(), Option<String>> {
        let library = self.folder.join(name);
        if library.exists() {
            return Ok(());
        }
        // Other processes may do the same at the same time; the last to finish gives the name.
        let own = self.folder.join(format!("{name}.{}", std::process::id()));
        let mut command = Command::new(compiler);
        command.args([
            "-std=c++17",
            "-O2",
            "-g1",
            "-fPIC",
            "-shared",
            "-pthread",
            "-fvisibility=hidden",
            "-frounding-math",
            "-fno-omit-frame-pointer",
        ]);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        command.arg(format!("-DMODEL_ROOT=\"{}\"", root.display()));
        command.arg(format!("-Wl,-soname,{name}")).arg("-o").arg(&own).args(files).arg("-ldl");
        let output = command.output().map_err(|error| Some(format!("{compiler}: {error}")))?;
        if !output.status.success() {
            return Err(Some(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr))));
        }
        fs::rename(&own, &library).map_err(|error| Some(format!("{}: {error}", library.display())))
    }
}

fn hash(sources: &Path, root: &Path) -> io::Result<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(sources)?.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "cpp" || e == "h"));
    files.sort();
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    for file in files {
        file.file_name().hash(&mut hasher);
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}
