"""The memory pool of the processor, as LLVM IR: aligned blocks that are kept and handed out again.

Comes in: nothing. Goes out: text that defines `take`, `give`, `trim` and the statistics; `process.py` compiles it. A block is a
header of 64 bytes (class, size, next free block) and then the data, on 64 bytes. Sizes are rounded up to one of four steps per
power of two, so at most a quarter of a block (above 256 bytes) is unused. Blocks of 2 MiB and more are mapped, begin on
2 MiB and ask for huge pages: filling fresh small pages is ten times slower than refilling memory that is already there. The
pages of a program's scratch space are asked for by all threads at once, before its first run. Blocks from 64 KiB on lie one after the
other in mappings of 16 MiB, slabs, that ask for huge pages too: reading many of them once, as the weights of a network are read, would else
look up the address of every small page in memory. Such a block keeps its place for ever; what it holds can be given back. Smaller blocks
are the C library's.

Time is cut into epochs. A block that is given back is stamped with the epoch, and goes back to the system when the next epoch but one begins:
nobody has taken it for a whole epoch. A loop whose steps are shorter than an epoch takes each of its blocks in each step (there are no more
of a size than it needs at once), so it loses none of them and never meets a fresh page. The clock is looked at when LOOK_BYTES have been given
back, and by workers of the thread pool that have slept for an epoch; an epoch in which neither happens does not end. Within two epochs the
pool keeps blocks of all sizes that are used, so what it has of the system is also bounded: by twice the most that was in use in them.
"""

from __future__ import annotations

import contextlib

from tengen.base.record import NamedTuple

HEADER_BYTES = 64
HUGE_BYTES = 2 << 20  # from this size on a block is its own mapping
SLAB_BLOCK_BYTES = 64 << 10  # from this size on a block lies in a slab
SLAB_BYTES = 16 << 20  # of a slab: what is left at its end, less than the next block needs, is lost
SLACK_BYTES = 64 << 20  # what the pool may have of the system beyond twice the most that was lately in use
LOOK_BYTES = 16 << 20  # so many are given back between two looks at the clock, which take 25 ns each
MAX_BYTES = 1 << 46  # more is refused on every machine: sizes stay far from overflow
MAX_EPOCH_NS = 1 << 60  # 37 years: the sum of a time and so many nanoseconds does not overflow
CLASSES = 4 * (46 - 8) + 8  # class of the largest block, plus one


class MachineMemory(NamedTuple):
    """Bytes of the machine's memory, what of them a process could still take, and what can be swapped out; at most what the control group
    of this process allows."""

    total: int
    free: int
    swap: int


def machine_memory() -> MachineMemory:
    """As Linux counts it. Errors: OSError on another system."""
    with open("/proc/meminfo") as f:
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in f}
    total, free, swap = (1024 * kilobytes[name] for name in ("MemTotal", "MemAvailable", "SwapTotal"))
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            most, now = (_number(f"/sys/fs/cgroup/{name}") for name in (limit, used))
            total, free = min(total, most), min(free, max(most - now, 0))
    return MachineMemory(total, free, swap)


def _number(file: str) -> int:
    with open(file) as f:
        return int(f.read())


def size_class(n_bytes: int) -> tuple[int, int]:
    """(number of the size class, bytes of its blocks) that serve a request of n_bytes; the meaning of the emitted code."""
    last = max(n_bytes, 1) - 1
    shift = max(last.bit_length() - 1, 8) - 2
    return (shift - 6) * 4 + (last >> shift), ((last >> shift) + 1) << shift


def memory_ir() -> str:
    """The pool's LLVM IR. It has no lock: whoever calls it holds the interpreter's lock.

    Defines, each with ``tengen_`` before its name:
        ``ptr take(i64 bytes)``: a block; NULL when the system has no memory left even after cached blocks were given back.
        ``void give(ptr data)``: the block may be handed out again.
        ``void populate(ptr data, i64 bytes, ptr parallel)``: the system backs the first bytes of a block now, in all threads at
            once, if the block is a mapping that was never populated.
        ``i64 trim(i64 bytes)``: gives cached blocks back, those of earlier epochs and large ones first, until that many bytes are free;
            returns them.
        ``void age()``: begins a new epoch if the last one is over, and gives back what nobody has taken for a whole one. ``i64 epoch_ns``:
            how long an epoch is, in nanoseconds.
        ``i64 pool_limit``: more is refused without asking, since it could never be filled: a system that promises any amount of memory
            (``vm.overcommit_memory=1``) ends the process that fills it. MAX_BYTES until somebody says less.
        ``i64 pool_stats[4]``: bytes in use, cached, the most ever in use, and the most ever in use and cached.
    """
    text = _POOL + _SYSTEM
    for name, value in (
        ("CLASSES", CLASSES), ("HEADER", HEADER_BYTES), ("HUGE", HUGE_BYTES), ("SLACK", SLACK_BYTES), ("MAX", MAX_BYTES),
        ("SLAB_BLOCK", SLAB_BLOCK_BYTES), ("SLAB", SLAB_BYTES), ("LOOK", LOOK_BYTES), ("MAX_EPOCH", MAX_EPOCH_NS),
        ("LAST_CLASS", CLASSES - 1), ("HUGE_ROUND", HUGE_BYTES - 1), ("HUGE_MASK", -HUGE_BYTES),
    ):  # fmt: skip
        text = text.replace(f"${name}$", str(value))
    return text


_POOL = """\
%block_t = type { i64, i64, ptr, i64, i64, [3 x i64] }   ; class, bytes of data, next free block, whether it may be populated, epoch
@tengen_pool_limit = global i64 $MAX$
@tengen_pool_stats = global [4 x i64] zeroinitializer  ; bytes in use, cached, peak in use, peak of both
@tengen_epoch_ns = global i64 $MAX_EPOCH$
@free_blocks = internal global [$CLASSES$ x ptr] zeroinitializer     ; of each class, the block that was given back last first
@pool_epoch = internal global i64 1
@pool_epoch_began = internal global i64 0              ; when, in nanoseconds
@pool_given = internal global i64 0                    ; bytes since the clock was looked at
@pool_lately = internal global [2 x i64] zeroinitializer     ; the most in use in this epoch, and in the one before

define ptr @tengen_take(i64 %bytes) {
entry:
  %limit = load i64, ptr @tengen_pool_limit
  %too_many = icmp ugt i64 %bytes, %limit
  br i1 %too_many, label %none, label %classify
classify:                                              ; see size_class
  %last = call i64 @llvm.usub.sat.i64(i64 %bytes, i64 1)
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 false)
  %top = sub i64 63, %zeros
  %exponent = call i64 @llvm.smax.i64(i64 %top, i64 8)
  %shift = sub i64 %exponent, 2
  %step = lshr i64 %last, %shift
  %steps = add i64 %step, 1
  %size = shl i64 %steps, %shift
  %row = sub i64 %exponent, 8
  %row4 = mul i64 %row, 4
  %class = add i64 %row4, %step
  %list = getelementptr ptr, ptr @free_blocks, i64 %class
  %first = load ptr, ptr %list
  %empty = icmp eq ptr %first, null
  br i1 %empty, label %fresh, label %reuse
reuse:
  %next.p = getelementptr %block_t, ptr %first, i64 0, i32 2
  %next = load ptr, ptr %next.p
  store ptr %next, ptr %list
  %cached.p = getelementptr i64, ptr @tengen_pool_stats, i64 1
  %cached = load i64, ptr %cached.p
  %cached.new = sub i64 %cached, %size
  store i64 %cached.new, ptr %cached.p
  br label %count
fresh:
  %made = call ptr @pool_grow(i64 %size, i64 %class)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %none, label %count
count:
  %b = phi ptr [%first, %reuse], [%made, %fresh]
  %used = load i64, ptr @tengen_pool_stats
  %used.new = add i64 %used, %size
  store i64 %used.new, ptr @tengen_pool_stats
  %peak.p = getelementptr i64, ptr @tengen_pool_stats, i64 2
  %peak = load i64, ptr %peak.p
  %peak.new = call i64 @llvm.umax.i64(i64 %peak, i64 %used.new)
  store i64 %peak.new, ptr %peak.p
  %lately = load i64, ptr @pool_lately
  %lately.new = call i64 @llvm.umax.i64(i64 %lately, i64 %used.new)
  store i64 %lately.new, ptr @pool_lately
  %data = getelementptr i8, ptr %b, i64 $HEADER$
  ret ptr %data
none:
  ret ptr null
}

define void @tengen_give(ptr %data) {
entry:
  %b = getelementptr i8, ptr %data, i64 -$HEADER$
  %class = load i64, ptr %b
  %size.p = getelementptr %block_t, ptr %b, i64 0, i32 1
  %size = load i64, ptr %size.p
  %list = getelementptr ptr, ptr @free_blocks, i64 %class
  %next = load ptr, ptr %list
  %next.p = getelementptr %block_t, ptr %b, i64 0, i32 2
  store ptr %next, ptr %next.p
  store ptr %b, ptr %list
  %used = load i64, ptr @tengen_pool_stats
  %used.new = sub i64 %used, %size
  store i64 %used.new, ptr @tengen_pool_stats
  %cached.p = getelementptr i64, ptr @tengen_pool_stats, i64 1
  %cached = load i64, ptr %cached.p
  %cached.new = add i64 %cached, %size
  store i64 %cached.new, ptr %cached.p
  %epoch = load i64, ptr @pool_epoch
  %epoch.p = getelementptr %block_t, ptr %b, i64 0, i32 4
  store i64 %epoch, ptr %epoch.p
  %given = load i64, ptr @pool_given
  %given.new = add i64 %given, %size
  store i64 %given.new, ptr @pool_given
  %many = icmp ugt i64 %given.new, $LOOK$
  br i1 %many, label %look, label %end
look:
  call void @tengen_age()
  br label %end
end:
  ret void
}

define void @tengen_age() noinline {
entry:
  store i64 0, ptr @pool_given
  %now = call i64 @tengen.clock()
  %began = load i64, ptr @pool_epoch_began
  %gone = sub i64 %now, %began
  %whole = load i64, ptr @tengen_epoch_ns
  %over = icmp uge i64 %gone, %whole
  br i1 %over, label %next, label %end
next:
  store i64 %now, ptr @pool_epoch_began
  %epoch = load i64, ptr @pool_epoch
  %epoch.new = add i64 %epoch, 1
  store i64 %epoch.new, ptr @pool_epoch
  %lately = load i64, ptr @pool_lately
  store i64 %lately, ptr getelementptr (i64, ptr @pool_lately, i64 1)
  %used = load i64, ptr @tengen_pool_stats
  store i64 %used, ptr @pool_lately
  %r = call i64 @pool_cut(i64 -1, i64 %epoch)
  br label %end
end:
  ret void
}

define i64 @tengen_trim(i64 %bytes) {
  %epoch = load i64, ptr @pool_epoch
  %old = call i64 @pool_cut(i64 %bytes, i64 %epoch)
  %rest = call i64 @llvm.usub.sat.i64(i64 %bytes, i64 %old)
  %new = call i64 @pool_cut(i64 %rest, i64 -1)
  %all = add i64 %old, %new
  ret i64 %all
}

; Gives cached blocks of epochs before %epoch back, large ones first, until %bytes are free; returns how many are. In a list they come last.
define internal i64 @pool_cut(i64 %bytes, i64 %epoch) noinline {
entry:
  br label %class
class:
  %c = phi i64 [$LAST_CLASS$, %entry], [%c.next, %empty]
  %freed.c = phi i64 [0, %entry], [%freed, %empty]
  %list = getelementptr ptr, ptr @free_blocks, i64 %c
  br label %block
block:                                                 ; %at: where the pointer to the block is
  %at = phi ptr [%list, %class], [%next.p, %young], [%at, %free]
  %freed = phi i64 [%freed.c, %class], [%freed, %young], [%freed.new, %free]
  %b = load ptr, ptr %at
  %enough = icmp uge i64 %freed, %bytes
  br i1 %enough, label %done, label %look
look:
  %next.p = getelementptr %block_t, ptr %b, i64 0, i32 2
  %is_empty = icmp eq ptr %b, null
  br i1 %is_empty, label %empty, label %compare
compare:
  %stamp.p = getelementptr %block_t, ptr %b, i64 0, i32 4
  %stamp = load i64, ptr %stamp.p
  %old = icmp ult i64 %stamp, %epoch
  br i1 %old, label %free, label %young
young:
  br label %block
free:
  %next = load ptr, ptr %next.p
  store ptr %next, ptr %at
  %size.p = getelementptr %block_t, ptr %b, i64 0, i32 1
  %size = load i64, ptr %size.p
  call void @pool_unmap(ptr %b, i64 %size)
  %cached.p = getelementptr i64, ptr @tengen_pool_stats, i64 1
  %cached = load i64, ptr %cached.p
  %cached.new = sub i64 %cached, %size
  store i64 %cached.new, ptr %cached.p
  %freed.new = add i64 %freed, %size
  br label %block
empty:
  %c.next = sub i64 %c, 1
  %more = icmp sge i64 %c.next, 0
  br i1 %more, label %class, label %done
done:
  ret i64 %freed
}
"""

# mmap's protection 3 = read | write, flags 0x22 = private | anonymous, madvise's advice 4 = give the pages back, 14 = huge pages,
# 23 = back them now, as if they were written (refused before Linux 5.14: they are then backed when they are written): Linux, all
# processors. Lengths are rounded to 64 KiB, the largest page of any Linux, so that both ends of a mapping may be cut.
_SYSTEM = """\
@slab_rest = internal global [2 x ptr] zeroinitializer      ; where the free part of the last slab begins, and its end
@empty_blocks = internal global [$CLASSES$ x ptr] zeroinitializer    ; of slabs: places of blocks that were given back, by class

declare ptr @aligned_alloc(i64, i64)
declare i32 @getpagesize()
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)

; A new block. What is cached stays below what was lately in use at once, so a program whose sizes change does not hoard memory.
define internal ptr @pool_grow(i64 %size, i64 %class) noinline {
entry:
  %used = load i64, ptr @tengen_pool_stats
  %cached.p = getelementptr i64, ptr @tengen_pool_stats, i64 1
  %cached = load i64, ptr %cached.p
  %now = load i64, ptr @pool_lately
  %before = load i64, ptr getelementptr (i64, ptr @pool_lately, i64 1)
  %used.new = add i64 %used, %size
  %lately = call i64 @llvm.umax.i64(i64 %now, i64 %before)
  %most = call i64 @llvm.umax.i64(i64 %lately, i64 %used.new)
  %twice = mul i64 %most, 2
  %bound = add i64 %twice, $SLACK$
  %total = add i64 %used.new, %cached
  %excess = call i64 @llvm.usub.sat.i64(i64 %total, i64 %bound)
  %cut = call i64 @tengen_trim(i64 %excess)
  %first = call ptr @pool_map(i64 %size, i64 %class)
  %refused = icmp eq ptr %first, null
  br i1 %refused, label %retry, label %fill
retry:
  %all = call i64 @tengen_trim(i64 -1)
  %second = call ptr @pool_map(i64 %size, i64 %class)
  %none = icmp eq ptr %second, null
  br i1 %none, label %fail, label %fill
fill:
  %b = phi ptr [%first, %entry], [%second, %retry]
  store i64 %class, ptr %b
  %size.p = getelementptr %block_t, ptr %b, i64 0, i32 1
  store i64 %size, ptr %size.p
  %kept = load i64, ptr %cached.p
  %held = add i64 %used.new, %kept
  %held.p = getelementptr i64, ptr @tengen_pool_stats, i64 3
  %held.most = load i64, ptr %held.p
  %held.new = call i64 @llvm.umax.i64(i64 %held.most, i64 %held)
  store i64 %held.new, ptr %held.p
  %huge = icmp uge i64 %size, $HUGE$
  %bare = zext i1 %huge to i64
  %bare.p = getelementptr %block_t, ptr %b, i64 0, i32 3
  store i64 %bare, ptr %bare.p
  ret ptr %b
fail:
  ret ptr null
}

define internal ptr @pool_map(i64 %size, i64 %class) {
entry:
  %bytes = add i64 %size, $HEADER$
  %huge = icmp uge i64 %size, $HUGE$
  br i1 %huge, label %map, label %look
map:
  %m = call ptr @map_huge(i64 %bytes)
  ret ptr %m
look:
  %slab = icmp uge i64 %size, $SLAB_BLOCK$
  br i1 %slab, label %empty, label %small
small:
  %p = call ptr @aligned_alloc(i64 64, i64 %bytes)
  ret ptr %p
empty:
  %list = getelementptr ptr, ptr @empty_blocks, i64 %class
  %b = load ptr, ptr %list
  %none = icmp eq ptr %b, null
  br i1 %none, label %carve, label %again
again:
  %next.p = getelementptr %block_t, ptr %b, i64 0, i32 2
  %next = load ptr, ptr %next.p
  store ptr %next, ptr %list
  ret ptr %b
carve:
  %c = call ptr @slab_carve(i64 %bytes)
  ret ptr %c
}

; The next bytes of the last slab, or the first of a new one.
define internal ptr @slab_carve(i64 %bytes) {
entry:
  %end.p = getelementptr ptr, ptr @slab_rest, i64 1
  %rest = load ptr, ptr @slab_rest
  %end = load ptr, ptr %end.p
  %rest.at = ptrtoint ptr %rest to i64
  %end.at = ptrtoint ptr %end to i64
  %room = sub i64 %end.at, %rest.at
  %fits = icmp uge i64 %room, %bytes
  br i1 %fits, label %take, label %new
new:
  %slab = call ptr @map_huge(i64 $SLAB$)
  %refused = icmp eq ptr %slab, null
  br i1 %refused, label %none, label %begin
begin:
  %slab.end = getelementptr i8, ptr %slab, i64 $SLAB$
  store ptr %slab.end, ptr %end.p
  br label %take
take:
  %b = phi ptr [%rest, %entry], [%slab, %begin]
  %after = getelementptr i8, ptr %b, i64 %bytes
  store ptr %after, ptr @slab_rest
  ret ptr %b
none:
  ret ptr null
}

; A mapping that begins on 2 MiB.
define internal ptr @map_huge(i64 %bytes) {
entry:                                                 ; map 2 MiB more, then cut both ends off
  %bytes.up = add i64 %bytes, 65535
  %length = and i64 %bytes.up, -65536
  %wide = add i64 %length, $HUGE$
  %raw = call ptr @mmap(ptr null, i64 %wide, i32 3, i32 34, i32 -1, i64 0)
  %at = ptrtoint ptr %raw to i64
  %failed = icmp eq i64 %at, -1
  br i1 %failed, label %none, label %align
align:
  %at.up = add i64 %at, $HUGE_ROUND$
  %from = and i64 %at.up, $HUGE_MASK$
  %before = sub i64 %from, %at
  %base = inttoptr i64 %from to ptr
  %has_before = icmp ne i64 %before, 0
  br i1 %has_before, label %cut, label %rest
cut:
  %r1 = call i32 @munmap(ptr %raw, i64 %before)
  br label %rest
rest:                                                  ; never empty: at most 2 MiB - 1 went before
  %end = getelementptr i8, ptr %base, i64 %length
  %after = sub i64 $HUGE$, %before
  %r2 = call i32 @munmap(ptr %end, i64 %after)
  %r3 = call i32 @madvise(ptr %base, i64 %length, i32 14)
  ret ptr %base
none:
  ret ptr null
}

; Kernels would meet new pages unevenly, one thread in this kernel and the other in that one, and wait for each other.
define void @tengen_populate(ptr %data, i64 %bytes, ptr %parallel) {
entry:
  %b = getelementptr i8, ptr %data, i64 -$HEADER$
  %bare.p = getelementptr %block_t, ptr %b, i64 0, i32 3
  %bare = load i64, ptr %bare.p
  %backed = icmp eq i64 %bare, 0
  br i1 %backed, label %end, label %ask
ask:
  store i64 0, ptr %bare.p
  %length.p = alloca i64, align 8
  %length = add i64 %bytes, $HEADER$
  store i64 %length, ptr %length.p
  %length.up = add i64 %length, $HUGE_ROUND$
  %pieces = udiv i64 %length.up, $HUGE$
  call void %parallel(ptr @pool_back, ptr %b, ptr %length.p, i64 %pieces)
  br label %end
end:
  ret void
}

define internal void @pool_back(ptr %b, ptr %length.p, i64 %begin, i64 %end) {
entry:
  %length = load i64, ptr %length.p
  %from = mul i64 %begin, $HUGE$
  %to.all = mul i64 %end, $HUGE$
  %to = call i64 @llvm.umin.i64(i64 %to.all, i64 %length)
  br label %next
next:                                                  ; little by little: whoever maps memory meanwhile waits for one
  %at = phi i64 [%from, %entry], [%at.next, %one]
  %more = icmp ult i64 %at, %to
  br i1 %more, label %one, label %done
one:
  %at.next = add i64 %at, $HUGE$
  %left = sub i64 %to, %at
  %n = call i64 @llvm.umin.i64(i64 %left, i64 $HUGE$)
  %p = getelementptr i8, ptr %b, i64 %at
  %r = call i32 @madvise(ptr %p, i64 %n, i32 23)
  br label %next
done:
  ret void
}

define internal void @pool_unmap(ptr %b, i64 %size) {
entry:
  %huge = icmp uge i64 %size, $HUGE$
  br i1 %huge, label %map, label %look
look:
  %slab = icmp uge i64 %size, $SLAB_BLOCK$
  br i1 %slab, label %empty, label %small
small:
  call void @free(ptr %b)
  ret void
map:
  %bytes = add i64 %size, $HEADER$
  %bytes.up = add i64 %bytes, 65535
  %length = and i64 %bytes.up, -65536
  %r = call i32 @munmap(ptr %b, i64 %length)
  ret void
empty:                                                 ; whole pages inside of the data go back; the header stays
  %page = call i32 @getpagesize()
  %page.wide = zext i32 %page to i64
  %round = sub i64 %page.wide, 1
  %mask = sub i64 0, %page.wide
  %at = ptrtoint ptr %b to i64
  %data = add i64 %at, $HEADER$
  %end = add i64 %data, %size
  %data.up = add i64 %data, %round
  %from = and i64 %data.up, %mask
  %to = and i64 %end, %mask
  %inside = call i64 @llvm.usub.sat.i64(i64 %to, i64 %from)
  %from.p = inttoptr i64 %from to ptr
  %r2 = call i32 @madvise(ptr %from.p, i64 %inside, i32 4)
  %class = load i64, ptr %b
  %list = getelementptr ptr, ptr @empty_blocks, i64 %class
  %next = load ptr, ptr %list
  %next.p = getelementptr %block_t, ptr %b, i64 0, i32 2
  store ptr %next, ptr %next.p
  store ptr %b, ptr %list
  ret void
}
"""
