//! Which variables change llama.cpp: shown by the scan, removed from every child (design section 4; cases C10, C21); and
//! those a user may keep with a build.

use super::doctor::is_secret;

/// Prefixes of the variables llama.cpp and its backends read.
const SWITCH_PREFIXES: [&str; 2] = ["GGML_", "LLAMA_"];
/// The dynamic loader's own variables: they change which code runs, which the digest of a build's files cannot tell.
const LOADER_PREFIXES: [&str; 2] = ["LD_", "DYLD_"];
/// Other variables of that kind: ggml's, Vulkan's and the C library's search paths for code, and that for programs.
const LOADER_NAMES: [&str; 5] = [
    "GGML_BACKEND_PATH",
    "VK_LAYER_PATH",
    "VK_ADD_LAYER_PATH",
    "GCONV_PATH",
    "PATH",
];
/// llama-server reads its arguments from these, too: they are settings, not surroundings.
const ARGUMENT_PREFIX: &str = "LLAMA_ARG_";

/// Is this a variable llama.cpp reads? Windows compares names without case.
pub fn is_switch(name: &str) -> bool {
    starts_with_any(name, &SWITCH_PREFIXES)
}

fn starts_with_any(name: &str, prefixes: &[&str]) -> bool {
    let name = name.to_ascii_uppercase();
    prefixes.iter().any(|p| name.starts_with(p))
}

/// Reads `NAME=VALUE`, a variable to keep with a build. The value may be empty: llama.cpp's switches test presence.
///
/// # Errors
/// In one sentence: no such shape, no name of a variable, a control character in the value, or a variable that does not
/// belong with a build: the loader's, llama-server's arguments, a secret.
pub fn parse_variable(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("write NAME=VALUE, not {text}"));
    };
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || !name.chars().all(is_word)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Err(format!(
            "not the name of a variable (letters, digits and _, no digit first): {name}"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("the value of {name} has a control character"));
    }
    let loads = |names: &[&str]| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    if starts_with_any(name, &LOADER_PREFIXES) || loads(&LOADER_NAMES) {
        return Err(format!(
            "{name} changes which code is loaded, which the build's digest cannot tell; set it where Flux is started"
        ));
    }
    if starts_with_any(name, &[ARGUMENT_PREFIX]) {
        return Err(format!(
            "{name} is an argument of llama-server: pass it after -- to `flux run`"
        ));
    }
    let signs_in = value
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains('@'));
    if is_secret(name) || signs_in {
        return Err(format!(
            "{name} looks like a secret, and what is kept with a build is shown and exported"
        ));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_a_build_is_read() {
        let read = |text| parse_variable(text).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read("HSA_OVERRIDE_GFX_VERSION=10.3.0"),
            pair("HSA_OVERRIDE_GFX_VERSION", "10.3.0")
        );
        assert_eq!(read("_A1=b=c d"), pair("_A1", "b=c d"));
        assert_eq!(
            read("VK_DRIVER_FILES=/usr/share/x.json"),
            pair("VK_DRIVER_FILES", "/usr/share/x.json")
        );
        assert_eq!(
            read("GGML_VK_DISABLE_F16="),
            pair("GGML_VK_DISABLE_F16", "")
        );
    }

    #[test]
    fn what_does_not_belong_with_a_build_is_refused_in_one_sentence() {
        for (wrong, why) in [
            ("GGML_VK_VISIBLE_DEVICES", "write NAME=VALUE"),
            ("=1", "not the name of a variable"),
            ("1A=1", "not the name of a variable"),
            ("A-B=1", "not the name of a variable"),
            ("Ä=1", "not the name of a variable"),
            ("A=1\0", "control character"),
            ("A=1\nB=2", "control character"),
            ("LD_PRELOAD=/tmp/x.so", "which code is loaded"),
            ("ld_library_path=/tmp", "which code is loaded"),
            ("DYLD_INSERT_LIBRARIES=x", "which code is loaded"),
            ("LLAMA_ARG_N_GPU_LAYERS=3", "an argument of llama-server"),
            ("GGML_BACKEND_PATH=/tmp/x.so", "which code is loaded"),
            ("PATH=/tmp", "which code is loaded"),
            ("LLAMA_API_KEY=x", "a secret"),
            ("GITHUB_PAT=x", "a secret"),
            ("DB_PASSWD=x", "a secret"),
            ("HTTPS_PROXY=http://user:word@host", "a secret"),
        ] {
            let error = parse_variable(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
