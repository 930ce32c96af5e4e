//! A Docker Compose file with llama.cpp's own images (its `docs/docker.md`). In a container llama-server listens on every
//! address; the port is published on this machine alone. Compose reads `$` as a variable unless it is doubled.

use std::collections::BTreeMap;

use crate::domain::types::Backend;

use super::{Handover, Word, yaml_quoted};

/// The port in the container: the image's own health check asks there.
const INSIDE: &str = "8080";

/// The GPU through NVIDIA's container toolkit.
const NVIDIA: &str = "    deploy:\n      resources:\n        reservations:\n          devices:\n            \
                      - driver: nvidia\n              count: all\n              capabilities: [gpu]\n";

fn scalar(text: &str) -> String {
    yaml_quoted(&text.replace('$', "$$"))
}

fn place(word: &Word) -> String {
    if word.in_home {
        yaml_quoted(&format!("${{HOME}}{}", word.text.replace('$', "$$")))
    } else {
        scalar(&word.text)
    }
}

fn devices(nodes: &[&str]) -> String {
    let lines = nodes.iter().map(|n| format!("      - {n}:{n}\n"));
    format!("    devices:\n{}", lines.collect::<Vec<_>>().concat())
}

/// Tag of the image, and how the container gets its GPU.
fn image(h: &Handover) -> Result<(&'static str, String), String> {
    Ok(match h.backend {
        Backend::Cpu | Backend::Rpc => ("server", String::new()),
        Backend::Cuda => ("server-cuda", NVIDIA.to_owned()),
        Backend::Hip => ("server-rocm", devices(&["/dev/kfd", "/dev/dri"])),
        Backend::Sycl => ("server-intel", devices(&["/dev/dri"])),
        Backend::Vulkan if h.is_nvidia => ("server-vulkan", NVIDIA.to_owned()),
        Backend::Vulkan => ("server-vulkan", devices(&["/dev/dri"])),
        Backend::Metal => {
            return Err("containers on macOS have no GPU: export a bash script".to_owned());
        }
    })
}

/// Where a file of the model lies in the container.
fn inside(file: &Word) -> String {
    let name = file.text.rsplit(['/', '\\']).next().unwrap_or_default();
    format!("/models/{name}")
}

pub(super) fn yaml(h: &Handover) -> Result<String, String> {
    let (tag, gpu) = image(h)?;
    let mut there = h.clone();
    there.model = vec![Word::exact(inside(&h.model[0]))];
    let arguments = there.arguments("0.0.0.0", INSIDE);
    let command: Vec<String> = arguments
        .iter()
        .map(|w| format!("      - {}\n", scalar(&w.text)))
        .collect();
    let mut env: BTreeMap<&str, String> = h
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), place(value)))
        .collect();
    if h.is_nvidia && h.backend == Backend::Vulkan {
        // Without "graphics" the toolkit leaves the Vulkan driver out.
        env.insert(
            "NVIDIA_DRIVER_CAPABILITIES",
            yaml_quoted("compute,graphics,utility"),
        );
    }
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("      {name}: {value}\n"))
        .collect();
    let mounts: Vec<String> = h
        .model
        .iter()
        .map(|file| {
            format!(
                "      - type: bind\n        source: {}\n        target: {}\n        read_only: true\n",
                place(file),
                scalar(&inside(file))
            )
        })
        .collect();
    Ok(format!(
        "{comments}\
         # The image holds another build than the measured one: measure again in the container where it matters.\n\
         services:\n  llama-server:\n    image: ghcr.io/ggml-org/llama.cpp:{tag}\n    \
         # Inside, on every address of the container; published on this machine alone.\n    \
         command:\n{command}    \
         environment:\n      # Passed on where it is set: the key that clients must have.\n      LLAMA_API_KEY:\n{env}    \
         ports:\n      - \"127.0.0.1:{port}:{INSIDE}\"\n    \
         volumes:\n{mounts}{gpu}    \
         restart: unless-stopped\n",
        comments = h.comments("#"),
        port = h.port,
        command = command.concat(),
        env = env.concat(),
        mounts = mounts.concat(),
    ))
}
