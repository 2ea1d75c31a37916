"""The thread pool, as LLVM IR: a kernel's pieces are shared among threads that spin for a moment and then sleep.

Comes in: a target and a prefix for the names. Goes out: text that needs only libc and pthread, so that a process that
compiles for itself (`process.py`) and a program built ahead of time run the same code. How it works:

- `state` is one word: workers inside the job (bits 0-15), "a job is open" (bit 16), number of the job (bits 32-63). A worker
  adds 1 to go in, and is in if the job was open; the caller opens a job, takes pieces itself until none is left, closes it, and
  waits for the workers that are inside. A worker that has not come in is never waited for, and cannot see a half-written job.
- Pieces are cut into as many runs as there are threads (at most RUNS), each with a counter in `next`. A thread claims pieces of
  its own run, an eighth of what is left at a time, then of the other runs: so a thread finds in its cache what it wrote in
  the kernel before, if both kernels go through memory in the same order, and neighbours are written by one thread; and the last
  pieces are claimed one by one, so that a thread that was held up does not keep the others waiting for several.
- A worker that has seen no new job for 100 us sleeps. `sleepers` counts those who have no permit to wake; the caller hands out
  as many permits as it needs threads. Sleeper: count yourself, then look at the job number; caller: raise the job number, then
  look at the count. Both are sequentially consistent, so one of them sees the other.
- Where the process has something to tidy up when nothing is computed, a worker that sleeps wakes some times, once in so many nanoseconds,
  and does that. A job that comes meanwhile does not wait for it.
- One job at a time: whoever finds the pool `busy` runs all pieces itself.
"""

from __future__ import annotations

from tengen.codegen.targets import Target

MAX_THREADS = 1024
RUNS = 8  # of pieces at most: each thread looks at all of them before it leaves a job
SPIN_NS = 100_000  # how long an idle worker looks for work before it sleeps: a few times the gap between two eager calls
STACK_BYTES = 16 << 20  # of each worker; only what is used is ever backed by memory
IDLE_TURNS = 4  # that a worker takes at tidying up in one sleep


def threads_ir(
    target: Target, prefix: str = "tengen", threads: int = 1, at_fork: bool = False, idle: tuple[str, str] | None = None
) -> str:
    """The thread pool's LLVM IR.

    Args:
        target: what it is for. prefix: of the defined names.
        threads: how many to use until `set_threads` says otherwise. at_fork: register `forget_threads` with pthread_atfork when
            workers start; for programs that are linked (a running process cannot look that symbol up in every libc).
        idle: the names of a function ``void f()`` that a sleeping worker calls IDLE_TURNS times, and of the i64 that has the nanoseconds
            between two turns; default: it sleeps on.

    Defines, each with ``prefix_`` before its name:
        ``void parallel(kernel, ptr* buffers, i64* ints, i64 pieces)``: runs ``kernel(buffers, ints, begin, end)`` until every
        piece of 0..pieces-1 is done. ``void serial(...)``: the same on the calling thread alone. ``i64 set_threads(i64 n)``:
        stops the workers if n differs, sets it (at most 1024), returns what is set. ``void stop_threads()``: ends and joins the
        workers; the next call starts them again. ``void forget_threads()``: for a forked child, in which no worker exists.
    """
    values = {
        "PAUSE": target.architecture.pause, "P": prefix, "THREADS": threads, "MAX": MAX_THREADS, "RUNS": RUNS, "SPIN": SPIN_NS,
        "STACK": STACK_BYTES, "OPEN": 1 << 16, "OPEN_JOB": (1 << 32) | (1 << 16), "JOB": 1 << 32, "INSIDE": (1 << 16) - 1,
        "SIGNALS": ~sum(1 << (s - 1) for s in (4, 7, 8, 11)),  # ILL, BUS, FPE, SEGV stay: a crash is reported where it happens
        "ATFORK": f"%af = call i32 @pthread_atfork(ptr null, ptr null, ptr @{prefix}_forget_threads)" if at_fork else "",
    }  # fmt: skip
    if idle is not None:
        values |= {"IDLE": idle[0], "IDLE_NS": idle[1], "TURNS": IDLE_TURNS}
    sleep = _SLEEP if idle is None else _SLEEP_IN_TURNS
    text = _DATA + _CALL + _WORKER + sleep + _LIFE + ("declare i32 @pthread_atfork(ptr, ptr, ptr)\n" if at_fork else "")
    for name, value in values.items():
        text = text.replace(f"${name}$", str(value))
    return text


# Each group that is written together has its own 128 bytes (two cache lines: processors fetch neighbours). A mutex and a
# condition variable of zeros are initialised ones on Linux, glibc and musl; 128 bytes hold either.
_DATA = """\
%$P$.job = type { ptr, ptr, ptr, i64, i64 }            ; kernel, buffers, ints, pieces, runs
%$P$.run = type { i64, [15 x i64] }                     ; the first piece that nobody has claimed
@$P$.state = internal global i64 0, align 128
@$P$.next = internal global [$RUNS$ x %$P$.run] zeroinitializer, align 128
@$P$.job = internal global %$P$.job zeroinitializer, align 128
@$P$.busy = internal global i64 0, align 128
@$P$.sleepers = internal global i64 0, align 128
@$P$.permits = internal global i64 0                   ; written under the mutex, as is sleepers
@$P$.mutex = internal global [16 x i64] zeroinitializer, align 128
@$P$.wake = internal global [16 x i64] zeroinitializer, align 128
@$P$.threads = internal global i64 $THREADS$, align 128
@$P$.workers = internal global i64 0                   ; running ones; written by who holds busy
@$P$.asked = internal global i64 0                     ; workers were started (fewer may have come): do not try each time
@$P$.stop = internal global i64 0
@$P$.ids = internal global [$MAX$ x i64] zeroinitializer

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_yield()
"""

_CALL = """\
define void @$P$_serial(ptr %kernel, ptr %buffers, ptr %ints, i64 %pieces) {
  call void %kernel(ptr %buffers, ptr %ints, i64 0, i64 %pieces)
  ret void
}

define void @$P$_parallel(ptr %kernel, ptr %buffers, ptr %ints, i64 %pieces) {
entry:
  %few = icmp sle i64 %pieces, 1
  %threads = load atomic i64, ptr @$P$.threads monotonic, align 8
  %alone = icmp sle i64 %threads, 1
  %direct = or i1 %few, %alone
  br i1 %direct, label %self, label %enter
enter:
  %lock = cmpxchg ptr @$P$.busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %lock, 1
  br i1 %mine, label %ready, label %self
self:
  call void %kernel(ptr %buffers, ptr %ints, i64 0, i64 %pieces)
  ret void
ready:
  %asked = load i64, ptr @$P$.asked
  %started = icmp ne i64 %asked, 0
  br i1 %started, label %publish, label %start
start:
  call void @$P$.start(i64 %threads)
  br label %publish
publish:
  store ptr %kernel, ptr @$P$.job
  store ptr %buffers, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 1)
  store ptr %ints, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 2)
  store i64 %pieces, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 3)
  %many = icmp sgt i64 %threads, $RUNS$
  %runs = select i1 %many, i64 $RUNS$, i64 %threads
  store i64 %runs, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 4)
  br label %cut
cut:
  %r = phi i64 [0, %publish], [%r.next, %cut]
  %r.pieces = mul i64 %r, %pieces
  %r.first = udiv i64 %r.pieces, %runs
  %r.at = getelementptr %$P$.run, ptr @$P$.next, i64 %r
  store atomic i64 %r.first, ptr %r.at monotonic, align 8
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %runs
  br i1 %r.more, label %cut, label %open
open:
  %opened = atomicrmw add ptr @$P$.state, i64 $OPEN_JOB$ seq_cst
  %sleepers = load atomic i64, ptr @$P$.sleepers seq_cst, align 8
  %awake = icmp eq i64 %sleepers, 0
  br i1 %awake, label %share_work, label %rouse
rouse:
  call void @$P$.rouse(i64 %pieces)
  br label %share_work
share_work:
  call void @$P$.work(i64 0)
  %closed = atomicrmw sub ptr @$P$.state, i64 $OPEN$ acq_rel
  br label %wait
wait:                                                  ; the others finish what they claimed; yield if that takes long
  %spins = phi i64 [0, %share_work], [%spins.next, %again], [0, %yield]
  %state = load atomic i64, ptr @$P$.state acquire, align 8
  %inside = and i64 %state, $INSIDE$
  %done = icmp eq i64 %inside, 0
  br i1 %done, label %end, label %pause
pause:
  $PAUSE$
  %spins.next = add i64 %spins, 1
  %long = icmp ugt i64 %spins.next, 2000
  br i1 %long, label %yield, label %again
again:
  br label %wait
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
end:
  store atomic i64 0, ptr @$P$.busy release, align 8
  ret void
}

; Claims and runs pieces until none is left, those of the thread's own run first. Only inside an open job.
define internal void @$P$.work(i64 %thread) {
entry:
  %kernel = load ptr, ptr @$P$.job
  %buffers = load ptr, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 1)
  %ints = load ptr, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 2)
  %pieces = load i64, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 3)
  %runs = load i64, ptr getelementptr (%$P$.job, ptr @$P$.job, i64 0, i32 4)
  br label %run
run:
  %i = phi i64 [0, %entry], [%i.next, %other]
  %turn = add i64 %thread, %i
  %r = urem i64 %turn, %runs
  %r.next = add i64 %r, 1
  %r.pieces = mul i64 %r.next, %pieces
  %end = udiv i64 %r.pieces, %runs
  %next = getelementptr %$P$.run, ptr @$P$.next, i64 %r
  br label %look
look:
  %now = load atomic i64, ptr %next monotonic, align 8
  %some = icmp slt i64 %now, %end
  br i1 %some, label %take, label %other
take:                                                  ; even loads, few atomic operations
  %there = sub i64 %end, %now
  %eighth = lshr i64 %there, 3
  %none = icmp eq i64 %eighth, 0
  %claim = select i1 %none, i64 1, i64 %eighth
  %begin = atomicrmw add ptr %next, i64 %claim monotonic
  %left = sub i64 %end, %begin
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %call, label %other
call:
  %last = icmp slt i64 %left, %claim
  %n = select i1 %last, i64 %left, i64 %claim
  %stop = add i64 %begin, %n
  call void %kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop)
  br label %look
other:
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %runs
  br i1 %more, label %run, label %done
done:
  ret void
}

; Wakes as many sleepers as there are pieces for which no thread is awake.
define internal void @$P$.rouse(i64 %pieces) noinline {
entry:
  %r1 = call i32 @pthread_mutex_lock(ptr @$P$.mutex)
  %sleepers = load atomic i64, ptr @$P$.sleepers monotonic, align 8
  %workers = load i64, ptr @$P$.workers
  %awake = sub i64 %workers, %sleepers
  %others = sub i64 %pieces, 1
  %missing = sub i64 %others, %awake
  %enough = icmp slt i64 %missing, %sleepers
  %most = select i1 %enough, i64 %missing, i64 %sleepers
  %some = icmp sgt i64 %most, 0
  %n = select i1 %some, i64 %most, i64 0
  %sleepers.new = sub i64 %sleepers, %n
  store atomic i64 %sleepers.new, ptr @$P$.sleepers monotonic, align 8
  %permits = load i64, ptr @$P$.permits
  %permits.new = add i64 %permits, %n
  store i64 %permits.new, ptr @$P$.permits
  %r2 = call i32 @pthread_mutex_unlock(ptr @$P$.mutex)
  %all = icmp eq i64 %sleepers.new, 0
  br i1 %all, label %everyone, label %each
everyone:
  %r3 = call i32 @pthread_cond_broadcast(ptr @$P$.wake)
  ret void
each:
  %i = phi i64 [%n, %entry], [%i.next, %one]
  %more = icmp sgt i64 %i, 0
  br i1 %more, label %one, label %end
one:
  %r4 = call i32 @pthread_cond_signal(ptr @$P$.wake)
  %i.next = sub i64 %i, 1
  br label %each
end:
  ret void
}
"""

_WORKER = """\
define internal ptr @$P$.worker(ptr %number) {           ; the caller of a job is thread 0
entry:
  %thread = ptrtoint ptr %number to i64
  br label %look
look:                                                  ; %seen: the job this worker was last in, or found closed
  %seen = phi i64 [-1, %entry], [%job, %leave]
  %job.new = call i64 @$P$.await(i64 %seen)
  %stop = load atomic i64, ptr @$P$.stop acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %end, label %enter
enter:
  %state = atomicrmw add ptr @$P$.state, i64 1 acquire
  %job = lshr i64 %state, 32
  %bit = and i64 %state, $OPEN$
  %open = icmp ne i64 %bit, 0
  br i1 %open, label %work, label %leave
work:
  call void @$P$.work(i64 %thread)
  br label %leave
leave:
  %left = atomicrmw sub ptr @$P$.state, i64 1 release
  br label %look
end:
  ret ptr null
}

; Returns the number of a job that is not %seen, after spinning or sleeping.
define internal i64 @$P$.await(i64 %seen) {
entry:
  %turns.p = alloca i64, align 8
  store i64 0, ptr %turns.p
  %start = call i64 @$P$.clock()
  br label %spin
spin:
  %i = phi i64 [0, %entry], [%i.next, %pause], [0, %clock]
  %state = load atomic i64, ptr @$P$.state acquire, align 8
  %job = lshr i64 %state, 32
  %same = icmp eq i64 %job, %seen
  br i1 %same, label %idle, label %found
idle:
  %full = icmp eq i64 %i, 64
  br i1 %full, label %clock, label %pause
pause:
  $PAUSE$
  %i.next = add i64 %i, 1
  br label %spin
clock:
  %now = call i64 @$P$.clock()
  %gone = sub i64 %now, %start
  %tired = icmp ugt i64 %gone, $SPIN$
  br i1 %tired, label %sleep, label %spin
found:
  ret i64 %job
sleep:
  %r1 = call i32 @pthread_mutex_lock(ptr @$P$.mutex)
  %counted = atomicrmw add ptr @$P$.sleepers, i64 1 seq_cst
  %state.now = load atomic i64, ptr @$P$.state seq_cst, align 8
  %job.now = lshr i64 %state.now, 32
  %still = icmp eq i64 %job.now, %seen
  br i1 %still, label %check, label %never
never:                                                 ; a job came meanwhile
  %uncounted = atomicrmw sub ptr @$P$.sleepers, i64 1 monotonic
  br label %up
check:
  %permits = load i64, ptr @$P$.permits
  %none = icmp eq i64 %permits, 0
  br i1 %none, label %doze, label %take
doze:
  call void @$P$.sleep(ptr %turns.p)
  br label %check
take:
  %permits.new = sub i64 %permits, 1
  store i64 %permits.new, ptr @$P$.permits
  br label %up
up:
  %r3 = call i32 @pthread_mutex_unlock(ptr @$P$.mutex)
  %state.up = load atomic i64, ptr @$P$.state acquire, align 8
  %job.up = lshr i64 %state.up, 32
  ret i64 %job.up
}

define internal i64 @$P$.clock() {                     ; nanoseconds of CLOCK_MONOTONIC
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %ns.p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %ns.p
  %s.ns = mul i64 %s, 1000000000
  %all = add i64 %s.ns, %ns
  ret i64 %all
}
"""

# Waits for a permit, with the mutex; it may return without one.
_SLEEP = """\
define internal void @$P$.sleep(ptr %turns.p) {
  %r = call i32 @pthread_cond_wait(ptr @$P$.wake, ptr @$P$.mutex)
  ret void
}
"""

# 0 is CLOCK_REALTIME, which a condition variable of zeros goes by; 110 is ETIMEDOUT.
_SLEEP_IN_TURNS = """\
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)

define internal void @$P$.sleep(ptr %turns.p) {
entry:
  %until = alloca [2 x i64], align 8
  %turns = load i64, ptr %turns.p
  %more = icmp ult i64 %turns, $TURNS$
  br i1 %more, label %wait, label %sleep
sleep:
  %r1 = call i32 @pthread_cond_wait(ptr @$P$.wake, ptr @$P$.mutex)
  ret void
wait:
  %r2 = call i32 @clock_gettime(i32 0, ptr %until)
  %s = load i64, ptr %until
  %ns.p = getelementptr i64, ptr %until, i64 1
  %ns = load i64, ptr %ns.p
  %pause = load i64, ptr @$IDLE_NS$
  %pause.s = udiv i64 %pause, 1000000000
  %pause.ns = urem i64 %pause, 1000000000
  %ns.sum = add i64 %ns, %pause.ns
  %carry = udiv i64 %ns.sum, 1000000000
  %ns.until = urem i64 %ns.sum, 1000000000
  %s.sum = add i64 %s, %pause.s
  %s.until = add i64 %s.sum, %carry
  store i64 %s.until, ptr %until
  store i64 %ns.until, ptr %ns.p
  %why = call i32 @pthread_cond_timedwait(ptr @$P$.wake, ptr @$P$.mutex, ptr %until)
  %over = icmp eq i32 %why, 110
  br i1 %over, label %turn, label %end
turn:
  %turns.new = add i64 %turns, 1
  store i64 %turns.new, ptr %turns.p
  %r3 = call i32 @pthread_mutex_unlock(ptr @$P$.mutex)
  call void @$IDLE$()
  %r4 = call i32 @pthread_mutex_lock(ptr @$P$.mutex)
  br label %end
end:
  ret void
}
"""

# Workers block signals (set mask = 2 on Linux), so that a signal sent to the process interrupts a thread that can act on it.
_LIFE = """\
define internal void @$P$.start(i64 %threads) noinline {
entry:
  %attributes = alloca [16 x i64], align 16
  %mask = alloca [16 x i64], align 16
  %old = alloca [16 x i64], align 16
  store [16 x i64] zeroinitializer, ptr %mask
  store i64 $SIGNALS$, ptr %mask
  $ATFORK$
  %r1 = call i32 @pthread_attr_init(ptr %attributes)
  %r2 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $STACK$)
  %r3 = call i32 @pthread_sigmask(i32 2, ptr %mask, ptr %old)
  %wanted = sub i64 %threads, 1
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %wanted
  br i1 %more, label %create, label %end
create:
  %id = getelementptr i64, ptr @$P$.ids, i64 %i
  %i.next = add i64 %i, 1
  %number = inttoptr i64 %i.next to ptr
  %error = call i32 @pthread_create(ptr %id, ptr %attributes, ptr @$P$.worker, ptr %number)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %end, label %one                ; the system gives no more threads: go on with those there are
one:
  br label %next
end:
  store i64 %i, ptr @$P$.workers
  store i64 1, ptr @$P$.asked
  %r4 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  %r5 = call i32 @pthread_attr_destroy(ptr %attributes)
  ret void
}

define internal void @$P$.enter() {
entry:
  br label %try
try:
  %lock = cmpxchg ptr @$P$.busy, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %lock, 1
  br i1 %mine, label %end, label %yield
yield:
  %r = call i32 @sched_yield()
  br label %try
end:
  ret void
}

; Ends the workers; the caller holds busy.
define internal void @$P$.end_workers() {
entry:
  store atomic i64 1, ptr @$P$.stop release, align 8
  %raised = atomicrmw add ptr @$P$.state, i64 $JOB$ seq_cst
  %r1 = call i32 @pthread_mutex_lock(ptr @$P$.mutex)
  %sleepers = load atomic i64, ptr @$P$.sleepers monotonic, align 8
  store atomic i64 0, ptr @$P$.sleepers monotonic, align 8
  %permits = load i64, ptr @$P$.permits
  %permits.new = add i64 %permits, %sleepers
  store i64 %permits.new, ptr @$P$.permits
  %r2 = call i32 @pthread_mutex_unlock(ptr @$P$.mutex)
  %r3 = call i32 @pthread_cond_broadcast(ptr @$P$.wake)
  %workers = load i64, ptr @$P$.workers
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %join]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %join, label %end
join:
  %id.p = getelementptr i64, ptr @$P$.ids, i64 %i
  %id = load i64, ptr %id.p
  %r4 = call i32 @pthread_join(i64 %id, ptr null)
  %i.next = add i64 %i, 1
  br label %next
end:
  store i64 0, ptr @$P$.workers
  store i64 0, ptr @$P$.asked
  store i64 0, ptr @$P$.permits
  store atomic i64 0, ptr @$P$.stop release, align 8
  ret void
}

define void @$P$_stop_threads() {
  call void @$P$.enter()
  call void @$P$.end_workers()
  store atomic i64 0, ptr @$P$.busy release, align 8
  ret void
}

define i64 @$P$_set_threads(i64 %n) {
entry:
  %small = icmp slt i64 %n, 1
  %n1 = select i1 %small, i64 1, i64 %n
  %large = icmp sgt i64 %n1, $MAX$
  %n2 = select i1 %large, i64 $MAX$, i64 %n1
  call void @$P$.enter()
  %old = load atomic i64, ptr @$P$.threads monotonic, align 8
  %same = icmp eq i64 %old, %n2
  br i1 %same, label %end, label %change
change:
  call void @$P$.end_workers()
  store atomic i64 %n2, ptr @$P$.threads monotonic, align 8
  br label %end
end:
  store atomic i64 0, ptr @$P$.busy release, align 8
  ret i64 %n2
}

define void @$P$_forget_threads() {
  store atomic i64 0, ptr @$P$.state monotonic, align 8
  store atomic i64 0, ptr @$P$.busy monotonic, align 8
  store atomic i64 0, ptr @$P$.sleepers monotonic, align 8
  store atomic i64 0, ptr @$P$.stop monotonic, align 8
  store i64 0, ptr @$P$.permits
  store i64 0, ptr @$P$.workers
  store i64 0, ptr @$P$.asked
  store [16 x i64] zeroinitializer, ptr @$P$.mutex
  store [16 x i64] zeroinitializer, ptr @$P$.wake
  ret void
}
"""
