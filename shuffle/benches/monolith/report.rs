//! What is printed.

use serde_json::{Value, json};

use crate::disk::Disk;
use crate::engine::{Options, Report};

/// All figures: bytes in bytes, times in seconds, rates in 10^9 bytes per second of input.
pub fn summary(options: &Options, report: &Report, disk: Option<&Disk>) -> Value {
    let seconds = report.stages.iter().map(|stage| stage.seconds).sum::<f64>();
    let stages = report.stages.iter().map(|stage| {
        json!({
            "stage": stage.name,
            "seconds": rounded(stage.seconds),
            "user_seconds": rounded(stage.user_seconds),
            "system_seconds": rounded(stage.system_seconds),
        })
    });
    let mut summary = json!({
        "rows": report.rows,
        "bytes": report.bytes,
        "partitions": options.partitions,
        "buckets": report.buckets,
        "memory_bytes": options.memory_bytes,
        "planned_bytes": report.planned_bytes,
        "peak_bytes": peak_bytes(),
        "spilled_bytes": report.spilled_bytes,
        "seconds": rounded(seconds),
        "gb_per_s": rounded(report.bytes as f64 / 1e9 / seconds),
        "stages": stages.collect::<Vec<_>>(),
        "row_hash_in": report.row_hash_in.to_string(),
        "row_hash_out": report.row_hash_out.to_string(),
    });
    if let Some(disk) = disk {
        let limit = options.memory_bytes.unwrap_or(u64::MAX).min(report.bytes);
        let least = (4 * report.bytes - 2 * limit) as f64 / 1e9 / disk.best_gb_per_s();
        summary["disk"] = json!({
            "read_gb_per_s": rounded(disk.read_gb_per_s),
            "write_gb_per_s": rounded(disk.write_gb_per_s),
            "mixed_gb_per_s": rounded(disk.mixed_gb_per_s),
            "least_seconds": rounded(least),
        });
    }
    summary
}

/// The same for people: a line for each figure.
pub fn lines(summary: &Value) -> String {
    let figures = summary.as_object().into_iter().flatten();
    figures.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n")
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The most memory that this process ever had, in bytes; 0 where the system does not tell.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
