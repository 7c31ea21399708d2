#!/usr/bin/env python3
"""Rules about the tree: who may include whom, what core may name, what may be checked in, links that lead somewhere.

Usage: check_structure.py [ROOT]. Prints one line a violation and exits 1 when there is any.
"""
import os
import re
import subprocess
import sys

MAX_TRACKED_BYTES = 45 * 1000 * 1000

# A folder of core/ and the folders it may include besides itself.
MAY_INCLUDE = {
    "base": set(),
    "profile": {"base"},
    "loader": {"profile", "base"},
    "model": {"loader", "profile", "base"},
    "text": {"loader", "profile", "base"},
    "kv": {"loader", "profile", "base"},
    "spec": {"loader", "profile", "base"},
    "sched": {"kv", "loader", "profile", "base"},
}
MAY_INCLUDE["engine"] = set(MAY_INCLUDE)
MAY_INCLUDE["server"] = MAY_INCLUDE["engine"] | {"engine"}
MAY_INCLUDE["cli"] = MAY_INCLUDE["server"] | {"server"}

SOURCE = re.compile(r"\.(h|hpp|c|cpp|inl|inc|hip)$")
HEADER = re.compile(r"\.(h|hpp)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\s*([<"])([^">]+)[">]', re.M)
# Homes and workspaces: such a path means something on one machine only. /home/someone is the name for examples.
MACHINE_PATH = re.compile(r"(?<![\w./$}~-])/(?:(?:home|Users|work|workspace|builds)/(?!someone\b)[A-Za-z]|root/)")


def tracked_files(root):
    """Files that git tracks; without git (a source archive), every file outside build folders."""
    if os.path.exists(os.path.join(root, ".git")):
        try:
            # The tree may belong to another user than the one who runs the tests.
            listing = subprocess.run(["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z"],
                                     capture_output=True, check=True).stdout
            return [name for name in listing.decode().split("\0") if name and os.path.isfile(os.path.join(root, name))]
        except (OSError, subprocess.CalledProcessError):
            pass
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in ("build", ".git", "node_modules", "__pycache__")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return found


def read(root, name):
    with open(os.path.join(root, name), "rb") as file:
        return file.read()


def includes(text):
    return [(text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)) for match in INCLUDE.finditer(text)]


def without_comments(text):
    """C++ text with comments blanked, strings kept, line numbers unchanged."""
    pattern = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)) if m.group(0)[0] == "/" else m.group(0), text)


def check_core_includes(name, text):
    parts = name.split("/")
    if len(parts) < 3:  # core/main.cpp joins everything
        return
    own = parts[1]
    if own not in MAY_INCLUDE:
        yield f"{name}:1: core/{own} has no place in the include order; add it to check_structure.py"
        return
    for line, _, target in includes(text):
        other = target.split("/")[0]
        if ".." in target.split("/"):
            yield f"{name}:{line}: includes {target}: write the path from core/"
        elif other in ("plugins", "tests", "sdk", "core"):
            yield f"{name}:{line}: core includes {target}"
        elif other in MAY_INCLUDE and "/" in target and other != own and other not in MAY_INCLUDE[own]:
            yield f"{name}:{line}: core/{own} may not include {target}"


def check_core_names(name, text, plugin_names):
    code = without_comments(text)
    for plugin in plugin_names:
        for match in re.finditer(r"(?<![A-Za-z0-9_])(?:dev\.turbo\.)?(?:libturbo_)?" + re.escape(plugin) + r"(?![A-Za-z0-9])", code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}: core names the plugin {match.group(0)}"
    for match in re.finditer(r"dev\.turbo\.[a-z]", code):
        line = code.count("\n", 0, match.start()) + 1
        yield f"{name}:{line}: core names a plugin id"


def check_plugin_includes(root, name, text):
    own = "/".join(name.split("/")[:2])
    for line, quote, target in includes(text):
        head = target.split("/")[0]
        beside = os.path.normpath(os.path.join(os.path.dirname(name), target))
        if head in ("core", "sdk", "tests", "plugins"):
            yield f"{name}:{line}: a plugin includes {target}"
        elif quote == '"' and beside.startswith("..") or ".." in target.split("/") and not beside.startswith(own + "/"):
            yield f"{name}:{line}: a plugin includes {target}, outside its own folder"
        elif quote == '"' and not os.path.exists(os.path.join(root, beside)):
            in_source = os.path.exists(os.path.join(root, own, "src", target)) or target.startswith("turbo/")
            if not in_source and os.path.exists(os.path.join(root, "core", target)):
                yield f"{name}:{line}: a plugin includes core/{target}"


def check_header_comment(name, text):
    if not text.lstrip().startswith(("//", "/*")):
        yield f"{name}:1: a header starts with a comment that says what it is"


def check_machine_paths(root, name, data):
    if b"\0" in data[:8192]:
        return
    text = data.decode(errors="replace")
    places = [(match.start(), match.group(0)) for match in MACHINE_PATH.finditer(text)]
    if root.count("/") > 1 and root + "/" in text:
        places.append((text.index(root + "/"), root))
    for at, found in places[:1]:
        line = text.count("\n", 0, at) + 1
        yield f"{name}:{line}: the path of one machine: {found}"


def check_links(root, name, text):
    for match in re.finditer(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        if not os.path.exists(os.path.join(root, os.path.dirname(name), target)):
            yield f"{name}:{text.count(chr(10), 0, match.start()) + 1}: the link {target} leads nowhere"


def check_repository(root, files=None):
    files = tracked_files(root) if files is None else files
    plugins_folder = os.path.join(root, "plugins")
    plugin_names = sorted(name for name in (os.listdir(plugins_folder) if os.path.isdir(plugins_folder) else [])
                          if os.path.isdir(os.path.join(plugins_folder, name)))
    violations = []
    total = 0
    for name in files:
        data = read(root, name)
        total += len(data)
        text = data.decode(errors="replace") if SOURCE.search(name) else ""
        if not name.startswith("tests/integration/structure/"):
            violations += check_machine_paths(root, name, data)
        if name.endswith(".md"):
            violations += check_links(root, name, data.decode(errors="replace"))
        if HEADER.search(name):
            violations += check_header_comment(name, text)
        if name.startswith("core/") and SOURCE.search(name):
            violations += check_core_includes(name, text)
            violations += check_core_names(name, text, plugin_names)
        if name.startswith("plugins/") and SOURCE.search(name):
            violations += check_plugin_includes(root, name, text)
    if total > MAX_TRACKED_BYTES:
        violations.append(f"the tracked files hold {total} bytes, more than {MAX_TRACKED_BYTES}")
    if not any(name.startswith("core/") for name in files):
        violations.append(f"{root}: no files of core/ found, so nothing was checked")
    return violations


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    violations = check_repository(os.path.abspath(root))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
