"""WebAssembly with vectors of 16 bytes (SIMD128), addresses of 32 bits.

Bits: every operation of WebAssembly on float32 and float64 rounds once to nearest even and keeps subnormal numbers, in every engine;
only the payload of NaNs is open. It has no fused multiply-add, and no conversion of float16. Code for `wasm32-exact` writes both
out: a float32 fma in some twenty instructions of float64, rounded to odd first, so that it rounds once; a float64 fma is the C
library's. Code for `wasm32` does so in the math functions, whose errors are as everywhere, and rounds the products that sums are
made of: sums of products (matrix products, convolutions) differ in their last bits, and integers do not.

Memory: one thread; SharedArrayBuffer is not used.
"""

from __future__ import annotations

from tengen.codegen.targets.architecture import QUARTER, Alone, Architecture, Emitter, Level, Registers, VectorForm, by_quarters

_FEATURES = "+simd128,+nontrapping-fptoint,+sign-ext,+bulk-memory,+mutable-globals"
_TESTED = "run by node and by wasmtime, compared as bytes"


def _dot2i(emit: Emitter, args: list[str]) -> str:
    """Four i32x4.dot_i16x8_s, which wraps where all four operands of a sum are -32768, and an addition."""
    products = lambda a, b: emit.intrinsic("wasm.dot", QUARTER, f"<8 x i16> {a}", f"<8 x i16> {b}")
    return by_quarters(emit, args, "<8 x i16>", lambda total, a, b: emit.pure(f"add {QUARTER} {total}, {products(a, b)}"))


_ALONE = r"""
#define IMPORTED(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name))) extern
struct piece { word at; size_t bytes; };
IMPORTED(fd_read) int fd_read(int file, const struct piece *pieces, size_t count, size_t *done);
IMPORTED(fd_write) int fd_write(int file, const struct piece *pieces, size_t count, size_t *done);
IMPORTED(fd_close) int fd_close(int file);
IMPORTED(path_open) int path_open(int folder, int links, const char *path, size_t length,
    int how, long long rights, long long more, int flags, int *file);
IMPORTED(args_sizes_get) int args_sizes_get(size_t *count, size_t *bytes);
IMPORTED(args_get) int args_get(char **argv, char *text);
IMPORTED(proc_exit) void proc_exit(int code);

static word get(int file, void *to, size_t bytes) {
    struct piece p = {(word)to, bytes};
    size_t done = 0;
    return fd_read(file, &p, 1, &done) ? -1 : (word)done;
}

static word put(int file, const void *from, size_t bytes) {
    struct piece p = {(word)from, bytes};
    size_t done = 0;
    return fd_write(file, &p, 1, &done) ? -1 : (word)done;
}

static int open_file(const char *name) { /* below the folder /, which is the first that a program is given */
    int file = -1;
    size_t n = 0;
    while (*name == '/') name++;
    while (name[n]) n++;
    return path_open(3, 1, name, n, 0, 2, 0, 0, &file) ? -1 : file; /* right 2: to read */
}

void *malloc(size_t size) {
    size_t pages = __builtin_wasm_memory_grow(0, (size + 65535) / 65536);
    return pages == (size_t)-1 ? NULL : (void *)(pages * 65536);
}

static void close_file(int file) { fd_close(file); }

void _start(void) {
    size_t count = 0, bytes = 0;
    args_sizes_get(&count, &bytes);
    char **argv = malloc((count + 1) * sizeof *argv + bytes);
    if (!argv || args_get(argv, (char *)(argv + count + 1))) proc_exit(127);
    argv[count] = NULL;
    proc_exit(main((int)count, argv));
}
"""

WASM32 = Architecture(
    name="wasm32",
    data_layout="e-m:e-p:32:32-p10:8:8-p20:8:8-i64:64-i128:128-n32:64-S128-ni:1:10:20",
    levels={
        "wasm32": Level(
            "wasm32", "generic", _FEATURES, system="unknown-unknown", lacks=("half", "fma", "inner fma"), tested=_TESTED,
            bits="integers and single operations as everywhere; sums of products round each product (no fused multiply-add)",
        ),
        "wasm32-exact": Level("wasm32-exact", "generic", _FEATURES, system="unknown-unknown", lacks=("half", "fma"), tested=_TESTED),
    },
    registers=(Registers("", 16, 16),),
    masked=(),
    forms=(VectorForm("dot2i", "simd128", _dot2i),),
    pause='fence syncscope("singlethread") seq_cst',
    fence="",
    elf_machine=0,
    linking=None,
    c_triple="wasm32-wasi",
    emulators=("node", "wasmtime"),
    notable=(),
    cpuinfo=(),
    alone=Alone(("wasm32-freestanding", "-Wl,--export=_start"), _ALONE),
)  # fmt: skip
