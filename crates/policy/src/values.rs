//! Sizes, durations and the table of limits. Next: `written` reads them from a profile.

use stockade_proto::Limits;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    /// Stored as thousandths of a core.
    Cores,
    Count,
    Seconds,
    /// Stored as milliseconds.
    Duration,
}

impl Unit {
    /// What a person may write, for error messages.
    pub const fn form(self) -> &'static str {
        match self {
            Self::Bytes => "a size such as \"512M\" (K, M, G, T or plain bytes)",
            Self::Cores => "a number of cores such as 1.5",
            Self::Count => "a whole number",
            Self::Seconds => "a whole number of seconds",
            Self::Duration => "a duration such as \"90s\" (ms, s, m, h)",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRow {
    pub key: &'static str,
    pub unit: Unit,
    pub may_be_none: bool,
}

pub(crate) const LIMIT_COUNT: usize = 10;

const fn row(key: &'static str, unit: Unit, may_be_none: bool) -> LimitRow {
    LimitRow { key, unit, may_be_none }
}

/// One row per limit, in the order people see them; everything else is derived.
pub const LIMITS: [LimitRow; LIMIT_COUNT] = [
    row("memory", Unit::Bytes, true),
    row("cpu", Unit::Cores, true),
    row("cpu-seconds", Unit::Seconds, true),
    row("processes", Unit::Count, true),
    row("open-files", Unit::Count, true),
    row("file-size", Unit::Bytes, true),
    row("wall", Unit::Duration, true),
    row("output", Unit::Bytes, true),
    row("scratch", Unit::Bytes, false),
    row("grace", Unit::Duration, false),
];

/// Positions in `LIMITS` of those that planning looks at one by one.
pub(crate) mod limit {
    pub(crate) const MEMORY: usize = 0;
    pub(crate) const CPU: usize = 1;
    pub(crate) const PROCESSES: usize = 3;
    pub(crate) const WALL: usize = 6;
    pub(crate) const OUTPUT: usize = 7;
    pub(crate) const SCRATCH: usize = 8;
}

/// The plan's limits from values in the order of `LIMITS`.
pub(crate) fn to_limits(values: [Option<u64>; LIMIT_COUNT]) -> Limits {
    let [memory, cpu, cpu_seconds, processes, open_files, file_size, wall, output, scratch, grace] = values;
    Limits {
        memory_bytes: memory,
        cpu_millicores: cpu,
        cpu_seconds,
        processes,
        open_files,
        file_size_bytes: file_size,
        wall_ms: wall,
        output_bytes: output,
        // `scratch` and `grace` can't be written as "none"; zero is refused when parsed.
        scratch_bytes: scratch.unwrap_or(0),
        grace_ms: grace.unwrap_or(0),
    }
}

/// `512M`, `4G`, `1000`: base 1024.
pub fn size(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `250ms`, `5s`, `10m`, `1h`, in milliseconds. A bare number is refused: it is read as seconds by half
/// of its readers and as milliseconds by the others.
pub fn duration(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, suffix) = text.split_at(split);
    let scale = match suffix {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// `1.5` cores are 1500 thousandths. Decimal text, not a float: no rounding surprises, no casts.
pub fn cores(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    if fraction.is_empty() || fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let thousandths = format!("{fraction:0<3}").parse::<u64>().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(thousandths)
}

/// A limit's value as a person would write it.
pub(crate) fn show(unit: Unit, value: Option<u64>) -> String {
    let Some(value) = value else { return "none".to_owned() };
    match unit {
        Unit::Bytes => [(40, "T"), (30, "G"), (20, "M"), (10, "K")]
            .into_iter()
            .find(|(shift, _)| value >= 1 << shift && value % (1 << shift) == 0)
            .map_or_else(|| value.to_string(), |(shift, suffix)| format!("{}{suffix}", value >> shift)),
        Unit::Cores if value % 1_000 == 0 => format!("{}.0", value / 1_000),
        Unit::Cores => format!("{}.{:03}", value / 1_000, value % 1_000).trim_end_matches('0').to_owned(),
        Unit::Count | Unit::Seconds => value.to_string(),
        Unit::Duration => [(3_600_000, "h"), (60_000, "m"), (1_000, "s")]
            .into_iter()
            .find(|(scale, _)| value >= *scale && value % scale == 0)
            .map_or_else(|| format!("{value}ms"), |(scale, suffix)| format!("{}{suffix}", value / scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_durations_and_cores() {
        assert_eq!(size("512M"), Some(512 << 20));
        assert_eq!(size("4G"), Some(4 << 30));
        assert_eq!(size("1000"), Some(1000));
        for bad in ["", "M", "1.5G", "1MB", "-1", "1 M", "99999999999T", "1m"] {
            assert_eq!(size(bad), None, "{bad}");
        }
        assert_eq!(duration("10m"), Some(600_000));
        assert_eq!(duration("250ms"), Some(250));
        for bad in ["", "10", "s", "1d", "1.5s", "99999999999999999999h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
        assert_eq!(cores("1.5"), Some(1500));
        assert_eq!(cores("2"), Some(2000));
        for bad in ["", ".", "1.", "1.2345", "inf", "nan", "-1", "1e3"] {
            assert_eq!(cores(bad), None, "{bad}");
        }
    }

    #[test]
    fn positions_name_their_rows() {
        let named = [limit::MEMORY, limit::CPU, limit::PROCESSES, limit::WALL, limit::OUTPUT, limit::SCRATCH];
        assert_eq!(
            named.map(|at| LIMITS[at].key),
            ["memory", "cpu", "processes", "wall", "output", "scratch"]
        );
    }

    #[test]
    fn shown_values_read_back() {
        for (unit, value) in [(Unit::Bytes, 512 << 20), (Unit::Bytes, 1000), (Unit::Bytes, 1 << 40)] {
            assert_eq!(size(&show(unit, Some(value))), Some(value));
        }
        for value in [1, 999, 1000, 90_000, 3_600_000, 3_601_000] {
            assert_eq!(duration(&show(Unit::Duration, Some(value))), Some(value));
        }
        for value in [1, 1000, 1500, 250] {
            assert_eq!(cores(&show(Unit::Cores, Some(value))), Some(value));
        }
    }
}
