//! Numbers for people. Data is counted in powers of ten as disks and networks are, memory in powers of two.

use std::time::Duration;

/// `12 345 678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 row`, `12 345 rows`.
pub fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `1.23 GB`, powers of ten.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // 999.95 would be printed as 1000.0.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// `1.23 GB/s`; a dash for no time at all.
pub fn rate(total_bytes: u64, during: Duration) -> String {
    if during.is_zero() {
        return "-".into();
    }
    format!("{}/s", bytes((total_bytes as f64 / during.as_secs_f64()) as u64))
}

/// `1.9 s`, `3 min 20 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..1.0 => format!("{seconds:.2} s"),
        ..100.0 => format!("{seconds:.1} s"),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// As [`duration`], for times that may be very short: `12 µs`, `3.4 ms`.
pub fn short_duration(time: Duration) -> String {
    match time.as_micros() {
        micros @ ..1_000 => format!("{micros} µs"),
        micros @ ..10_000 => format!("{:.1} ms", micros as f64 / 1e3),
        micros @ ..1_000_000 => format!("{} ms", micros / 1_000),
        _ => duration(time),
    }
}

/// About how long a time is: `12 s`, `3 min`, `5 h`, `4 days`.
pub fn about(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ ..100 => format!("{seconds} s"),
        seconds @ ..6_000 => format!("{} min", seconds.div_ceil(60)),
        seconds @ ..172_800 => format!("{} h", seconds.div_ceil(3600)),
        seconds => format!("{} days", seconds.div_ceil(86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_scaled() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1 000");
        assert_eq!(count(12_345_678), "12 345 678");
        assert_eq!([0, 1, 1_000].map(|number| counted(number, "row")), ["0 rows", "1 row", "1 000 rows"]);
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.00 kB");
        assert_eq!(bytes(1_234_567), "1.23 MB");
        assert_eq!(bytes(99_960_000), "100 MB");
        assert_eq!(bytes(999_999_999), "1.00 GB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(rate(1_000_000_000, Duration::from_millis(500)), "2.00 GB/s");
        assert_eq!(rate(1, Duration::ZERO), "-");
        assert_eq!(duration(Duration::from_millis(1940)), "1.9 s");
        assert_eq!(duration(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(short_duration(Duration::from_micros(12)), "12 µs");
        assert_eq!(short_duration(Duration::from_micros(3_400)), "3.4 ms");
        assert_eq!(short_duration(Duration::from_millis(340)), "340 ms");
        assert_eq!(short_duration(Duration::from_millis(1_340)), "1.3 s");
        assert_eq!(about(Duration::from_millis(1_200)), "2 s");
        assert_eq!(about(Duration::from_secs(200)), "4 min");
        assert_eq!(about(Duration::from_secs(7_300)), "3 h");
        assert_eq!(about(Duration::from_secs(47 * 3_600)), "47 h");
        assert_eq!(about(Duration::from_secs(49 * 3_600)), "3 days");
    }
}
