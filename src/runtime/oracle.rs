//! llama-fit-params as an oracle: it makes a context without loading weights and prints what each memory would hold.

use std::ffi::OsString;
use std::time::Duration;

use crate::domain::types::{BufferUse, Bytes, Runtime};
use crate::ports::{CancelToken, MemoryOracle, MemoryQuestion, PortError, PortResult};
use crate::runtime::process::{Ended, Flow, Spec, run};

/// Asking takes about a second; the first start of a GPU backend takes longer.
const ASK_LIMIT: Duration = Duration::from_mins(1);
/// Its columns are whole MiB.
const MIB: u64 = 1 << 20;
/// Columns of a row: weights, context, compute.
const COLUMNS: usize = 3;

/// Asks the llama-fit-params beside a build's other programs.
#[derive(Debug, Clone, Copy, Default)]
pub struct FitParams;

impl MemoryOracle for FitParams {
    fn project(
        &self,
        runtime: &Runtime,
        question: &MemoryQuestion<'_>,
        cancel: &CancelToken,
    ) -> PortResult<Option<Vec<BufferUse>>> {
        let name = format!("llama-fit-params{}", std::env::consts::EXE_SUFFIX);
        let program = runtime.dir.join(name);
        if !program.is_file() {
            return Ok(None);
        }
        let mut spec = Spec::new(&program);
        let model = question.model.as_os_str().to_owned();
        spec.args = vec![OsString::from("-m"), model, "-fitp".into(), "on".into()];
        spec.args.extend(question.flags.iter().map(OsString::from));
        spec.env = runtime.environment(question.env);
        spec.time_limit = Some(ASK_LIMIT);
        let ended = run(&spec, cancel, &mut |_| Flow::Continue)
            .map_err(|e| PortError::caused(format!("cannot start {}", program.display()), &e))?;
        let rows = rows(&ended.stdout);
        if ended.is_success() && rows.iter().any(|r| r.device == "Host") {
            return Ok(Some(rows));
        }
        Err(failure(&ended).hint("Plan without it: Flux's own prediction needs no runtime"))
    }
}

fn failure(ended: &Ended) -> PortError {
    let said = ended
        .stderr
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty());
    let said = said.unwrap_or("it printed nothing").trim();
    PortError::new(format!(
        "llama-fit-params did not say what this placement takes: {said}"
    ))
}

/// The rows `NAME MODEL CONTEXT COMPUTE`, log lines among them left out.
fn rows(stdout: &str) -> Vec<BufferUse> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let device = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        let bytes = |i: usize| Some(Bytes(numbers.get(i)?.checked_mul(MIB)?));
        (numbers.len() == COLUMNS).then_some(BufferUse {
            device,
            model: bytes(0)?,
            context: bytes(1)?,
            compute: bytes(2)?,
        })
    };
    stdout.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As recorded on an H200, with a log line between.
    #[test]
    fn rows_are_read_between_log_lines() {
        let said = "0.00.028 I fit_params: printing estimated memory\nCUDA0 1401 304 301 \nHost 1279 272 14 \n";
        let read = rows(said);
        let mib = |device: &str, [model, context, compute]: [u64; 3]| BufferUse {
            device: device.to_owned(),
            model: Bytes(model * MIB),
            context: Bytes(context * MIB),
            compute: Bytes(compute * MIB),
        };
        assert_eq!(
            read,
            [mib("CUDA0", [1401, 304, 301]), mib("Host", [1279, 272, 14])]
        );
    }

    #[test]
    fn other_lines_are_no_rows() {
        assert_eq!(
            rows("Host 1 2\nHost 1 2 x\nHost 1 2 3 4\nHost 1 2 99999999999999999999\n"),
            []
        );
    }
}
