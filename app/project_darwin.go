package app

import "golang.org/x/sys/unix"

func directoryID(dir string) string {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return ""
	}
	return formatID(st.Ino, st.Btim.Nano())
}
