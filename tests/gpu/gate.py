#!/usr/bin/env python3
"""Static gate on AMD code objects: what a kernel may cost, and what it must never do.

Usage: gate.py --tools LLVM-BIN (--objects LIST | SOURCE ARCH OBJECT)
  LIST has lines "SOURCE|ARCH|OBJECT", as the build writes them to <build>/hip/objects.txt.

A kernel file's budgets stand in gate.json in the file's folder:
  {"file.hip": {"kernel": {"vgprs": 96, "lds": 16384, "threads": 256, "dot": true}}}
"*" names all kernels of the file (or, as a file's name, all files of the folder); a kernel's own entry wins.
Prints one line a kernel and exits 1 when any is refused.
"""
import argparse
import concurrent.futures
import json
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rdna.code_object import CodeObject, narrowed  # noqa: E402

# key: (limit when nothing is declared, what it is); None: anything goes
BUDGETS = {
    "vgprs": (256, "vector registers, by which the waves of a SIMD are limited"),
    "waves": (None, "waves that a SIMD must hold, of its vector registers; says the same of targets with more of them"),
    "lds": (65536, "shared memory of a block in bytes, dynamic_lds included"),
    "dynamic_lds": (0, "the most dynamic shared memory that launches ask for"),
    "threads": (None, "launch bound; known without this where TB_KERNEL is given a plain number"),
    "dot": (False, "must use four-way integer dot products"),
    "bpermutes": (None, "ds_bpermute instructions, each of which costs a trip through shared memory"),
    "flat": (None, "flat loads and stores: an address whose space the compiler lost"),
}
LDS_OF_HARDWARE = 65536
# Vector registers a lane of a SIMD has for waves of 32, and how many a wave takes at a time.
REGISTERS = {"gfx10": (1024, 8), "gfx11": (1536, 24)}


def declared(source, problems):
    """{kernel: threads or None} of a kernel file, for kernels that are written without macros of their own."""
    with open(source, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", file.read(), flags=re.S)
    text = re.sub(r"^[ \t]*#[ \t]*define(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.M)
    found = {}
    for name, threads in re.findall(r"\bTB_KERNEL\(\s*(\w+)\s*,[^,()]+,\s*([^,()]+?)\s*\)", text):
        if name in found:
            problems.append(f"{source}: kernel {name} is defined twice")
        found[name] = int(threads) if re.fullmatch(r"\d+", threads) else None
    return found


def table_of(source, problems):
    """Budgets of the file's kernels: {name: {key: value}}; "*" holds what all of them have."""
    path = os.path.join(os.path.dirname(source), "gate.json")
    if not os.path.exists(path):
        return {"*": {}}
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    folder = set(os.listdir(os.path.dirname(source) or "."))
    for name in whole:
        if name != "*" and name not in folder:
            problems.append(f"{path}: there is no {name}")
    common = whole.get("*", {}).get("*", {})
    table = dict(whole.get(os.path.basename(source), {}))
    table["*"] = {**common, **table.get("*", {})}
    for name, entry in table.items():
        for key in entry:
            if key not in BUDGETS:
                problems.append(f"{path}: {name}: {key} is not a budget; there are {', '.join(BUDGETS)}")
    return table


def check_kernel(kernel, target, budget, bound):
    """What is wrong with a kernel, in words; nothing when it passes."""
    wrong = []
    limit = {key: budget.get(key, default) for key, (default, _) in BUDGETS.items()}
    for kind in ("sgpr", "vgpr"):
        if kernel.number(f"{kind}_spill_count"):
            wrong.append(f"{kernel.number(f'{kind}_spill_count')} {kind} spills")
    if kernel.number("private_segment_fixed_size"):
        wrong.append(f"scratch: {kernel.number('private_segment_fixed_size')} bytes a thread")
    if kernel.meta.get("uses_dynamic_stack", "false") != "false":
        wrong.append("dynamic stack")
    if kernel.number("wavefront_size") != 32:
        wrong.append(f"wave{kernel.number('wavefront_size')}")
    lds = kernel.number("group_segment_fixed_size") + limit["dynamic_lds"]
    if lds > min(limit["lds"], LDS_OF_HARDWARE):
        wrong.append(f"{lds} bytes of shared memory, budget {min(limit['lds'], LDS_OF_HARDWARE)}")
    if kernel.number("vgpr_count") > limit["vgprs"]:
        wrong.append(f"{kernel.number('vgpr_count')} vgprs, budget {limit['vgprs']}")
    if limit["waves"] is not None:
        size, step = next(sizes for family, sizes in REGISTERS.items() if target.startswith(family))
        waves = size // (-(-max(kernel.number("vgpr_count"), 1) // step) * step)
        if waves < limit["waves"]:
            wrong.append(f"{kernel.number('vgpr_count')} vgprs leave {waves} waves a SIMD, wanted {limit['waves']}")
    bound = limit["threads"] if limit["threads"] is not None else bound
    if bound is None:
        if kernel.number("max_flat_workgroup_size") == 1024:  # what compilers take when nothing is said
            wrong.append("no launch bound; if 1024 is meant, declare threads in gate.json")
    elif kernel.number("max_flat_workgroup_size") != bound:
        wrong.append(f"max workgroup {kernel.number('max_flat_workgroup_size')}, launch bound {bound}")
    # Round to nearest, denormals of both widths kept: what the references do.
    if kernel.descriptor is None:
        wrong.append("no kernel descriptor")
    elif (kernel.rsrc1 >> 12) & 0xff != 0xf0:
        wrong.append(f"float mode {(kernel.rsrc1 >> 12) & 0xff:#x}: denormals are flushed or rounding is not to nearest")
    return wrong + check_body(kernel.body, target, limit)


def check_body(body, target, limit):
    wrong = []
    mnemonics = [instruction.mnemonic for instruction in body]
    if not body:
        return ["no instructions"]
    if any(re.match(r"s_(swappc|setpc|call)_b64", m) for m in mnemonics):
        wrong.append("call")
    if any(re.match(r"scratch_|buffer_(load|store|atomic)", m) for m in mnemonics):
        wrong.append("scratch access")
    flat = sum(m.startswith("flat_") for m in mnemonics)
    if limit["flat"] is not None and flat > limit["flat"]:
        wrong.append(f"{flat} flat accesses, budget {limit['flat']}")
    if limit["dot"]:
        want = r"v_(dual_)?dot4_i32_iu8" if target.startswith("gfx11") else r"v_dot4c?_i32_i8"
        if not any(re.match(want, m) for m in mnemonics):
            wrong.append("no four-way integer dot product")
    # Compilers up to mid 2025 move lane permutes behind an exec mask that the source narrowed later: silent wrong sums.
    off = narrowed(body)
    if any(i.mnemonic.startswith("v_permlane") and i.address in off for i in body):
        wrong.append("v_permlane under a narrowed exec mask")
    bpermutes = sum(m.startswith(("ds_bpermute", "ds_permute")) for m in mnemonics)
    if limit["bpermutes"] is not None and bpermutes > limit["bpermutes"]:
        wrong.append(f"{bpermutes} ds_bpermutes, budget {limit['bpermutes']}")
    return wrong


def count(body, prefix):
    return sum(instruction.mnemonic.startswith(prefix) for instruction in body)


def check_object(source, arch, path, tools, report):
    """Problems of one code object; `report` gets a line a kernel."""
    problems = []
    bounds = declared(source, problems)
    table = table_of(source, problems)
    code = CodeObject(path, tools)
    if code.target != arch:
        problems.append(f"{path}: built for {code.target or 'no target'}, not {arch}")
    for name in bounds.keys() - code.kernels.keys():
        problems.append(f"{path}: kernel {name} of {source} is missing")
    for name in table.keys() - code.kernels.keys() - {"*"}:
        problems.append(f"{os.path.dirname(source)}/gate.json: {os.path.basename(source)} has no kernel {name}")
    if not code.kernels:
        problems.append(f"{path}: no kernels")
    for name, kernel in sorted(code.kernels.items()):
        wrong = check_kernel(kernel, code.target, {**table["*"], **table.get(name, {})}, bounds.get(name))
        report(f"{arch:8s} {name:32s} vgprs {kernel.number('vgpr_count'):3d} sgprs {kernel.number('sgpr_count'):3d} "
               f"lds {kernel.number('group_segment_fixed_size'):5d} threads {kernel.number('max_flat_workgroup_size'):4d} "
               f"bpermutes {count(kernel.body, 'ds_bpermute'):3d} flat {count(kernel.body, 'flat_'):3d} instructions {len(kernel.body):5d} {'REFUSED' if wrong else 'ok'}")
        problems += [f"{source}: {name} for {arch}: {words}" for words in wrong]
    return problems


def checked(entry, tools):
    """Lines and problems of one entry of the list."""
    lines = []
    problems = check_object(*entry, tools, lines.append)
    return lines, problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", required=True, help="folder of llvm-readelf and llvm-objdump")
    parser.add_argument("--objects", help="list of objects")
    parser.add_argument("object", nargs="*", metavar="SOURCE ARCH OBJECT")
    options = parser.parse_args()
    if options.objects:
        with open(options.objects, encoding="utf-8") as file:
            objects = [line.rstrip("\n").split("|") for line in file if line.strip()]
    elif len(options.object) == 3:
        objects = [options.object]
    else:
        parser.error("give --objects LIST or SOURCE ARCH OBJECT")
    problems = []
    with concurrent.futures.ProcessPoolExecutor() as pool:  # disassembling is most of the work
        for lines, found in pool.map(checked, objects, [options.tools] * len(objects)):
            print("\n".join(lines))
            problems += found
    for problem in sorted(set(problems)):
        print(f"refused: {problem}", file=sys.stderr)
    print(f"{len(objects)} code objects, {len(set(problems))} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
