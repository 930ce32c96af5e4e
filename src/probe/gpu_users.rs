//! Which programs hold memory of a GPU, as their open files tell below `/proc` (the kernel's `drm-usage-stats`): those of
//! this user, or of everybody for root. NVIDIA's own driver tells nothing there.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::doctor::GpuUser;
use crate::domain::types::{Bytes, PciAddress};
use crate::system_root::{SystemRoot, file_name, read};

/// One file of a program that a GPU's driver answers for.
#[derive(Debug, PartialEq, Eq)]
struct Client {
    pci: PciAddress,
    /// The same client may be open many times.
    id: u64,
    vram: u64,
}

/// Every program but this one.
pub(super) fn gpu_users(root: &SystemRoot) -> Vec<GpuUser> {
    let own = std::process::id().to_string();
    let mut seen = BTreeSet::new();
    let mut users: BTreeMap<(PciAddress, String), u64> = BTreeMap::new();
    for process in root.list("proc") {
        let pid = file_name(&process);
        if pid == own || pid.parse::<u32>().is_err() {
            continue;
        }
        let files = root.list(process.join("fdinfo"));
        for client in files.iter().filter_map(|file| client(&read(file)?)) {
            if seen.insert((client.pci, client.id)) {
                let program = read(&process.join("comm")).unwrap_or_else(|| pid.clone());
                *users.entry((client.pci, program)).or_default() += client.vram;
            }
        }
    }
    users
        .into_iter()
        .map(|((pci, program), vram)| GpuUser {
            pci,
            program,
            vram: Bytes(vram),
        })
        .collect()
}

fn client(text: &str) -> Option<Client> {
    let fields: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    // Regions: `vram` of amdgpu, `vram0` of xe, `local0` of i915. What lies elsewhere now is not held.
    let of = |prefix: &str| -> Option<u64> {
        ["vram", "local"]
            .into_iter()
            .flat_map(|region| {
                let key = format!("{prefix}{region}");
                let ours = fields.iter().filter(move |(k, _)| k.starts_with(&key));
                ours.filter_map(|(_, value)| bytes(value))
                    .collect::<Vec<_>>()
            })
            .reduce(u64::wrapping_add)
    };
    Some(Client {
        pci: fields.get("drm-pdev")?.parse().ok()?,
        id: fields.get("drm-client-id")?.parse().ok()?,
        vram: of("drm-resident-").or_else(|| of("drm-memory-"))?,
    })
}

/// `524288 KiB`, `2 MiB`, or plain bytes.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let scale = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const AMD: &str = "pos:\t0\nflags:\t02\ndrm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\n\
        drm-memory-vram:\t524288 KiB\ndrm-memory-gtt: \t2048 KiB\n";

    #[test]
    fn a_client_that_is_open_twice_counts_once_and_two_of_a_program_are_added() {
        let tree = tempfile::tempdir().unwrap();
        let file = |pid: &str, fd: &str, text: &str| {
            let dir = tree.path().join("proc").join(pid).join("fdinfo");
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(fd), text).unwrap();
            fs::write(dir.with_file_name("comm"), "firefox\n").unwrap();
        };
        file("4242", "5", AMD);
        file("4242", "6", AMD);
        file("4242", "7", "pos:\t0\nflags:\t02\n");
        file(
            "4243",
            "5",
            &AMD.replace("id:\t9", "id:\t10")
                .replace("524288 KiB", "2 MiB"),
        );
        file("self", "5", &AMD.replace("id:\t9", "id:\t11"));
        file(
            &std::process::id().to_string(),
            "5",
            &AMD.replace("id:\t9", "id:\t12"),
        );
        assert_eq!(
            gpu_users(&SystemRoot::at(tree.path())),
            [GpuUser {
                pci: "0000:03:00.0".parse().unwrap(),
                program: "firefox".to_owned(),
                vram: Bytes::mib(514),
            }]
        );
    }

    #[test]
    fn every_driver_s_regions_are_read() {
        let vram = |lines: &str| {
            let text = format!("drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\n{lines}");
            client(&text).map(|client| client.vram)
        };
        // Newer amdgpu tells both; what is resident counts.
        assert_eq!(
            vram("drm-memory-vram:\t8 KiB\ndrm-resident-vram:\t4 KiB\n"),
            Some(4096)
        );
        assert_eq!(
            vram("drm-total-vram0:\t9 MiB\ndrm-resident-vram0:\t1 MiB\n"),
            Some(1 << 20)
        );
        assert_eq!(
            vram("drm-resident-local0:\t1 GiB\ndrm-resident-system0:\t1 GiB\n"),
            Some(1 << 30)
        );
        assert_eq!(vram("drm-resident-system0:\t1 GiB\n"), None);
    }
}
