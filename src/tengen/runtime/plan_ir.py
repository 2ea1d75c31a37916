"""A call of a program as a CPython builtin, as LLVM IR: it makes the outputs, runs the program, and returns them.

Comes in: the helpers of `native_ir.py`, which this text follows in one module. Goes out: ``py_plan``.
"""

from __future__ import annotations

PLAN_WORDS = 6  # of %plan_t, before the outputs and the integers

PLAN = """\
%plan_t = type { ptr, ptr, i64, i64, i64, i64 }          ; run, parallel, inputs, outputs, bytes of the arena, how
; how: 1 if the lock is released, plus 2 if the program may stop with an exception
; then the bytes of each output, or -(i+1) for "input i itself", then the program's integers

; Gives back the outputs %from <= j < %to that were taken from the pool.
define internal void @give_outputs(ptr %sizes, ptr %outputs, i64 %from, i64 %to) noinline {
entry:
  br label %next
next:
  %j = phi i64 [%from, %entry], [%j.next, %skip]
  %more = icmp slt i64 %j, %to
  br i1 %more, label %look, label %end
look:
  %size.p = getelementptr i64, ptr %sizes, i64 %j
  %size = load i64, ptr %size.p
  %owned = icmp sge i64 %size, 0
  br i1 %owned, label %give, label %skip
give:
  %p.p = getelementptr ptr, ptr %outputs, i64 %j
  %p = load ptr, ptr %p.p
  call void @tengen_give(ptr %p)
  br label %skip
skip:
  %j.next = add i64 %j, 1
  br label %next
end:
  ret void
}

; Output j as a new reference; NULL with an error set when there is no memory for a capsule (the block is then given back).
define internal ptr @make_output(ptr %sizes, ptr %outputs, ptr %args, i64 %j) {
entry:
  %size.p = getelementptr i64, ptr %sizes, i64 %j
  %size = load i64, ptr %size.p
  %owned = icmp sge i64 %size, 0
  br i1 %owned, label %new, label %same
same:
  %i = sub i64 -1, %size
  %a.p = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %a.p
  call void @Py_IncRef(ptr %a)
  ret ptr %a
new:
  %p.p = getelementptr ptr, ptr %outputs, i64 %j
  %p = load ptr, ptr %p.p
  %c = call ptr @PyCapsule_New(ptr %p, ptr null, ptr @release_block)
  %failed = icmp eq ptr %c, null
  br i1 %failed, label %undo, label %done
undo:
  call void @tengen_give(ptr %p)
  br label %done
done:
  ret ptr %c
}

; What a plan returns: the one output, or a tuple.
define internal ptr @make_result(ptr %sizes, ptr %outputs, ptr %args, i64 %n) {
entry:
  %single = icmp eq i64 %n, 1
  br i1 %single, label %one, label %many
one:
  %c = call ptr @make_output(ptr %sizes, ptr %outputs, ptr %args, i64 0)
  ret ptr %c
many:
  %tuple = call ptr @PyTuple_New(i64 %n)
  %unmade = icmp eq ptr %tuple, null
  br i1 %unmade, label %fail, label %next
next:
  %j = phi i64 [0, %many], [%j.next, %put]
  %more = icmp slt i64 %j, %n
  br i1 %more, label %make, label %end
make:
  %o = call ptr @make_output(ptr %sizes, ptr %outputs, ptr %args, i64 %j)
  %j.next = add i64 %j, 1
  %none = icmp eq ptr %o, null
  br i1 %none, label %undo, label %put
put:
  %r = call i32 @PyTuple_SetItem(ptr %tuple, i64 %j, ptr %o)
  br label %next
undo:
  call void @Py_DecRef(ptr %tuple)
  br label %fail
fail:
  %from = phi i64 [0, %many], [%j.next, %undo]
  call void @give_outputs(ptr %sizes, ptr %outputs, i64 %from, i64 %n)
  ret ptr null
end:
  ret ptr %tuple
}

; Calls the program, without the interpreter's lock if the plan says so. An address of 0 means: nothing to compute.
define internal void @run_plan(ptr %plan, ptr %buffers, ptr %ints, ptr %arena) {
entry:
  %run = load ptr, ptr %plan
  %parallel.p = getelementptr %plan_t, ptr %plan, i64 0, i32 1
  %parallel = load ptr, ptr %parallel.p
  %nothing = icmp eq ptr %run, null
  br i1 %nothing, label %end, label %mode
mode:
  %release.p = getelementptr %plan_t, ptr %plan, i64 0, i32 5
  %how = load i64, ptr %release.p
  %release = and i64 %how, 1
  %keep = icmp eq i64 %release, 0
  br i1 %keep, label %locked, label %unlocked
locked:
  call void %run(ptr %buffers, ptr %ints, ptr %parallel)
  br label %end
unlocked:
  %thread = call ptr @PyEval_SaveThread()
  %no_arena = icmp eq ptr %arena, null
  br i1 %no_arena, label %backed, label %back
back:                                                  ; a long program: its scratch space gets its pages first
  %arena_bytes.p = getelementptr %plan_t, ptr %plan, i64 0, i32 4
  %arena_bytes = load i64, ptr %arena_bytes.p
  call void @tengen_populate(ptr %arena, i64 %arena_bytes, ptr @tengen_parallel)
  br label %backed
backed:
  call void %run(ptr %buffers, ptr %ints, ptr %parallel)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %end
end:
  ret void
}

define ptr @py_plan(ptr %self, ptr %args, i64 %n) {
entry:
  %plan = call ptr @PyCapsule_GetPointer(ptr %self, ptr null)
  %n_in.p = getelementptr %plan_t, ptr %plan, i64 0, i32 2
  %n_in = load i64, ptr %n_in.p
  %n_out.p = getelementptr %plan_t, ptr %plan, i64 0, i32 3
  %n_out = load i64, ptr %n_out.p
  %arena_bytes.p = getelementptr %plan_t, ptr %plan, i64 0, i32 4
  %arena_bytes = load i64, ptr %arena_bytes.p
  %sizes = getelementptr %plan_t, ptr %plan, i64 1
  %ints = getelementptr i64, ptr %sizes, i64 %n_out
  %right = icmp eq i64 %n, %n_in
  br i1 %right, label %frame, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.plan, i64 %n_in, i64 %n)
  ret ptr null
frame:
  %both = add i64 %n_in, %n_out
  %all = add i64 %both, 1
  %buffers = alloca ptr, i64 %all, align 16
  %outputs = getelementptr ptr, ptr %buffers, i64 %n_in
  br label %inputs
inputs:
  %i = phi i64 [0, %frame], [%i.next, %store]
  %more_in = icmp slt i64 %i, %n_in
  br i1 %more_in, label %input, label %take
input:
  %a.p = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %a.p
  %p = call ptr @PyCapsule_GetPointer(ptr %a, ptr null)
  %foreign = icmp eq ptr %p, null
  br i1 %foreign, label %type, label %store
type:
  %e2 = call ptr @bad_type(ptr @name.plan, i64 %i, ptr %a)
  ret ptr null
store:
  %p.p = getelementptr ptr, ptr %buffers, i64 %i
  store ptr %p, ptr %p.p
  %i.next = add i64 %i, 1
  br label %inputs
take:
  %j = phi i64 [0, %inputs], [%j.next, %taken]
  %more_out = icmp slt i64 %j, %n_out
  br i1 %more_out, label %output, label %arena
output:
  %size.p = getelementptr i64, ptr %sizes, i64 %j
  %size = load i64, ptr %size.p
  %owned = icmp sge i64 %size, 0
  br i1 %owned, label %fresh, label %same
same:
  %k = sub i64 -1, %size
  %s.p = getelementptr ptr, ptr %buffers, i64 %k
  %s = load ptr, ptr %s.p
  br label %taken
fresh:
  %f = call ptr @tengen_take(i64 %size)
  %no_output = icmp eq ptr %f, null
  br i1 %no_output, label %undo_output, label %taken
undo_output:
  call void @give_outputs(ptr %sizes, ptr %outputs, i64 0, i64 %j)
  %me = load ptr, ptr @memory_error
  %used = load i64, ptr @tengen_pool_stats
  %e3 = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %me, ptr @text.output, i64 %j, i64 %size, i64 %used)
  ret ptr null
taken:
  %o = phi ptr [%s, %same], [%f, %fresh]
  %o.p = getelementptr ptr, ptr %outputs, i64 %j
  store ptr %o, ptr %o.p
  %j.next = add i64 %j, 1
  br label %take
arena:
  %arena.p = getelementptr ptr, ptr %outputs, i64 %n_out
  store ptr null, ptr %arena.p
  %no_arena = icmp eq i64 %arena_bytes, 0
  br i1 %no_arena, label %plain, label %scratch
plain:
  call void @run_plan(ptr %plan, ptr %buffers, ptr %ints, ptr null)
  br label %result
scratch:
  %arena_ = call ptr @tengen_take(i64 %arena_bytes)
  store ptr %arena_, ptr %arena.p
  %no_scratch = icmp eq ptr %arena_, null
  br i1 %no_scratch, label %undo_all, label %with_arena
undo_all:
  call void @give_outputs(ptr %sizes, ptr %outputs, i64 0, i64 %n_out)
  %e4 = call ptr @no_memory(ptr @text.arena, i64 %arena_bytes)
  ret ptr null
with_arena:
  call void @run_plan(ptr %plan, ptr %buffers, ptr %ints, ptr %arena_)
  call void @tengen_give(ptr %arena_)
  br label %result
result:
  %how.p = getelementptr %plan_t, ptr %plan, i64 0, i32 5
  %how = load i64, ptr %how.p
  %asks = icmp sge i64 %how, 2
  br i1 %asks, label %stopped, label %made
stopped:
  %raised = call ptr @PyErr_Occurred()
  %fine = icmp eq ptr %raised, null
  br i1 %fine, label %made, label %undo_run
undo_run:
  call void @give_outputs(ptr %sizes, ptr %outputs, i64 0, i64 %n_out)
  ret ptr null
made:
  %r = call ptr @make_result(ptr %sizes, ptr %outputs, ptr %args, i64 %n_out)
  ret ptr %r
}
"""
