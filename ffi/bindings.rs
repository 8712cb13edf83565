// The one place that says how bindings are generated: included by the build script (feature `bindgen`, from an installed
// CANN) and by `cargo xtask bindgen` (the committed ones, from the headers beside this file).

/// One library: the struct that holds its calls, and what is taken from its headers.
pub struct Bound {
    pub name: &'static str,
    pub file: &'static str,
    calls: &'static str,
    types: &'static str,
    constants: &'static str,
}

pub const BOUND: [Bound; 2] = [
    Bound {
        name: "Acl",
        file: "acl.rs",
        calls: concat!(
            "aclInit|aclGetRecentErrMsg|aclsysGetVersion(Num|Str)|aclGetDeviceCapability",
            "|aclrt(GetDeviceCount|(Set|Reset)Device|[GS]etCurrentContext|GetSocName|GetDeviceInfo|GetMemInfo)",
            "|aclrt(Malloc|Free|MallocHost|FreeHost|MemcpyAsync|MemsetAsync)",
            "|aclrt(CreateStream|DestroyStream|SynchronizeStream)",
            "|aclrt(CreateEventExWithFlag|DestroyEvent|RecordEvent|QueryEventStatus|SynchronizeEvent|EventElapsedTime)",
            "|aclmdlRI(CaptureBegin|CaptureEnd|CaptureGetInfo|ExecuteAsync|Destroy)",
            "|aclrtBinary(LoadFromData|GetFunction|UnLoad)|aclrtLaunchKernelWithHostArgs",
        ),
        types: "aclrtBinaryLoadOptions?",
        constants: concat!(
            "ACL_ERROR_(NONE|INVALID_PARAM|UNINITIALIZE|REPEAT_INITIALIZE|COMPILING_STUB_MODE)",
            "|ACL_ERROR_(BAD_ALLOC|API_NOT_SUPPORT|INTERNAL_ERROR|FAILURE)",
            "|ACL_ERROR_RT_(PARAM_INVALID|INVALID_DEVICEID|CONTEXT_NULL|STREAM_CONTEXT|INVALID_HANDLE)",
            "|ACL_ERROR_RT_(STREAM_CAPTURED|CAPTURE_MODE_NOT_SUPPORT|STREAM_CAPTURE_INVALIDATED)",
            "|ACL_ERROR_RT_(FEATURE_NOT_SUPPORT|MEMORY_ALLOCATION|NO_STREAM_RESOURCE|DEVICE_OOM|SOC_VERSION)",
            "|ACL_ERROR_RT_(LOST_HEARTBEAT|(AICORE|VECTOR_CORE)_(TIMEOUT|EXCEPTION)|KERNEL_LOOKUP)",
            "|ACL_EVENT_(SYNC|TIME_LINE)|ACL_PKG_VERSION_MAX_SIZE|ACL_RT_BINARY_MAGIC_ELF_AICORE",
        ),
    },
    Bound {
        name: "Aclrtc",
        file: "aclrtc.rs",
        calls: "aclrtc((Create|Compile|Destroy)Prog|Get(BinData|CompileLog)(Size)?)",
        types: "",
        constants: "",
    },
];

impl Bound {
    /// The bindings as text. `header` is C source; includes of it are looked for in `include`.
    pub fn generate(&self, header: &str, include: Option<&str>) -> Result<String, String> {
        let mut builder = bindgen::Builder::default()
            .header_contents("samedraw_bindings.h", header)
            .dynamic_library_name(self.name)
            .allowlist_function(self.calls)
            .allowlist_type(self.types)
            .allowlist_var(self.constants)
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .rust_target(bindgen::RustTarget::stable(88, 0).map_err(|error| error.to_string())?)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .generate_comments(false)
            .disable_header_comment()
            .formatter(bindgen::Formatter::Prettyplease);
        if let Some(include) = include {
            builder = builder.clang_arg(format!("-I{include}"));
        }
        // Without clang's own headers (a libclang installed alone), those of the system's C compiler serve.
        if let Some(own) = compiler_headers() {
            builder = builder.clang_arg(format!("-idirafter{own}"));
        }
        builder.generate().map(|bindings| bindings.to_string()).map_err(|error| error.to_string())
    }
}

fn compiler_headers() -> Option<String> {
    let output = std::process::Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    path.starts_with('/').then_some(path)
}
