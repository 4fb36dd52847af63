package builtin

// What other harnesses call the same arguments. Models learned these names; a call that uses them means
// what it says.
var (
	readAliases  = map[string]string{"file_path": "path", "filePath": "path", "file": "path", "filename": "path"}
	writeAliases = map[string]string{"file_path": "path", "filePath": "path", "file": "path", "filename": "path",
		"contents": "content", "text": "content", "file_text": "content"}
	editAliases = map[string]string{"file_path": "path", "filePath": "path", "file": "path", "filename": "path",
		"old_string": "oldString", "old_str": "oldString", "oldText": "oldString", "old_text": "oldString", "old": "oldString",
		"new_string": "newString", "new_str": "newString", "newText": "newString", "new_text": "newString", "new": "newString",
		"replace_all": "replaceAll"}
	lsAliases   = map[string]string{"dir": "path", "directory": "path", "dir_path": "path"}
	globAliases = map[string]string{"glob": "pattern", "dir_path": "path", "directory": "path"}
	grepAliases = map[string]string{"query": "pattern", "regex": "pattern", "include": "glob", "ignore_case": "ignoreCase",
		"files_only": "filesOnly", "dir_path": "path", "directory": "path"}
	bashAliases = map[string]string{"cmd": "command", "script": "command", "timeout_seconds": "timeoutSeconds"}
)
