//! How much memory the control group of the process may use (cgroups(7), version 2). Knows nothing
//! of what the memory is for.

use std::fs;
use std::path::Path;

/// The limit in bytes: that of the process's own group, or of one above it if that is lower. `None`
/// if there is none, or none that can be read.
pub(super) fn memory_limit() -> Option<usize> {
    limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// `groups` is what `/proc/self/cgroup` has.
fn limit(root: &Path, groups: &str) -> Option<usize> {
    // cgroups(7): version 2 is hierarchy 0, without a list of controllers
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = root.join(group);
    let above = own.ancestors().take_while(|group| group.starts_with(root));
    let files = above.filter_map(|group| fs::read_to_string(group.join("memory.max")).ok());
    // without a limit it is "max"
    files.filter_map(|limit| limit.trim_ascii().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_lowest_of_the_group_and_those_above_it() {
        let root =
            std::env::temp_dir().join(format!("colors-control-groups-{}", std::process::id()));
        let directory = root.join("system.slice/colors.service");
        fs::create_dir_all(&directory).unwrap();
        let check =
            |groups: &str, expected| assert_eq!(limit(&root, groups), expected, "{groups:?}");
        let groups = "1:memory:/other\n0::/system.slice/colors.service\n";
        check(groups, None);
        for (file, text, expected) in [
            ("system.slice/colors.service/memory.max", "max\n", None),
            ("system.slice/memory.max", "50331648\n", Some(50_331_648)),
            ("system.slice/colors.service/memory.max", "33554432\n", Some(33_554_432)),
            // in a container the process's own group is the root
            ("memory.max", "1048576\n", Some(1_048_576)),
        ] {
            fs::write(root.join(file), text).unwrap();
            check(groups, expected);
        }
        check("0::/\n", Some(1_048_576));
        check("0::/../elsewhere\n", Some(1_048_576));
        check("4:memory:/other\n", None);
        check("", None);
        fs::remove_dir_all(&root).unwrap();
    }
}
