"""Buffers and calls as CPython builtins, as LLVM IR: what makes an eager call cost a fraction of a microsecond.

Comes in: the pool of `memory.py`. Goes out: text that defines the builtins of `process.py`. A buffer is an unnamed PyCapsule
whose pointer is the first byte. Its destructor gives the block back (an owned block) or drops the owner (a view, foreign
memory: the owner is the capsule's context). A plan is a capsule over the words of %plan_t, `self` of a builtin that runs it.
Everything here runs under the interpreter's lock.
"""

from __future__ import annotations

from tengen.runtime.plan_ir import PLAN

UNLOCKED_BYTES = 1 << 20  # from so many on a copy lets other threads of Python go on

# The functions of CPython that the text calls; all in its stable interface.
PYTHON_SYMBOLS = (
    "PyCapsule_GetPointer", "PyCapsule_New", "PyCapsule_GetContext", "PyCapsule_SetContext", "PyCapsule_GetDestructor",
    "PyBool_FromLong", "PyBuffer_Release", "PyErr_Format", "PyErr_Occurred", "PyEval_RestoreThread", "PyEval_SaveThread",
    "PyLong_AsLongLong", "PyLong_AsVoidPtr", "PyLong_FromVoidPtr", "PyObject_GetBuffer", "PyObject_Type", "PyTuple_New",
    "PyTuple_SetItem", "Py_DecRef", "Py_IncRef",
)  # fmt: skip


def python_ir() -> str:
    """The LLVM IR of the builtins; it follows `memory_ir()` and `threads_ir()` in one module.

    Defines ``py_new_buffer``, ``py_copied``, ``py_over``, ``py_view``, ``py_wrap``, ``py_address``, ``py_borrowed``, ``py_sole`` and
    ``py_plan``, all METH_FASTCALL, and ``tengen_init(TypeError, MemoryError, ValueError)``, which must be called first.
    """
    texts = {name: text.encode() for name, text in _MESSAGES.items()}
    constants = [f'@{name} = private constant [{len(t) + 1} x i8] c"{t.decode()}\\00"\n' for name, t in texts.items()]
    return "".join(constants) + _HELPERS + _BUFFERS.replace("$UNLOCKED$", str(UNLOCKED_BYTES)) + PLAN


_MESSAGES = {
    "text.count": "%s takes %zd arguments, %zd given",
    "text.type": "%s: argument %zd is %R, not a buffer",
    "text.negative": "new_buffer: a buffer of %zd bytes",
    "text.buffer": "no memory for a buffer of %zd bytes; %zd bytes are in use",
    "text.output": "no memory for output %zd of a program, %zd bytes; %zd bytes are in use",
    "text.arena": "no memory for the scratch space of a program, %zd bytes; %zd bytes are in use",
    "name.new": "new_buffer",
    "name.copied": "copied",
    "name.over": "over",
    "name.view": "view",
    "name.wrap": "wrap",
    "name.address": "address",
    "name.borrowed": "borrowed",
    "name.sole": "sole",
    "name.plan": "a program",
}

_HELPERS = """\
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare ptr @PyCapsule_GetContext(ptr)
declare i32 @PyCapsule_SetContext(ptr, ptr)
declare ptr @PyCapsule_GetDestructor(ptr)
declare ptr @PyBool_FromLong(i64)
declare void @PyBuffer_Release(ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyLong_FromVoidPtr(ptr)
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare ptr @PyObject_Type(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare void @Py_IncRef(ptr)

@type_error = internal global ptr null
@memory_error = internal global ptr null
@value_error = internal global ptr null

define void @tengen_init(ptr %type, ptr %memory, ptr %value) {
  store ptr %type, ptr @type_error
  store ptr %memory, ptr @memory_error
  store ptr %value, ptr @value_error
  ret void
}

; The errors. Each returns NULL, which is what a builtin returns when it has raised.
define internal ptr @bad_count(ptr %name, i64 %want, i64 %given) noinline cold {
  %e = load ptr, ptr @type_error
  %r = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %e, ptr @text.count, ptr %name, i64 %want, i64 %given)
  ret ptr null
}
define internal ptr @bad_type(ptr %name, i64 %i, ptr %object) noinline cold {
  %e = load ptr, ptr @type_error
  %type = call ptr @PyObject_Type(ptr %object)
  %r = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %e, ptr @text.type, ptr %name, i64 %i, ptr %type)
  call void @Py_DecRef(ptr %type)
  ret ptr null
}
define internal ptr @no_memory(ptr %text, i64 %bytes) noinline cold {
  %e = load ptr, ptr @memory_error
  %used = load i64, ptr @tengen_pool_stats
  %r = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %e, ptr %text, i64 %bytes, i64 %used)
  ret ptr null
}

; The destructors of capsules.
define internal void @release_block(ptr %capsule) {
  %p = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  call void @tengen_give(ptr %p)
  ret void
}
define internal void @release_owner(ptr %capsule) {
  %owner = call ptr @PyCapsule_GetContext(ptr %capsule)
  call void @Py_DecRef(ptr %owner)
  ret void
}

; A capsule over memory that %owner keeps; NULL with an error set if there can be none.
define internal ptr @borrow(ptr %p, ptr %owner) {
entry:
  %c = call ptr @PyCapsule_New(ptr %p, ptr null, ptr @release_owner)
  %failed = icmp eq ptr %c, null
  br i1 %failed, label %end, label %keep
keep:
  call void @Py_IncRef(ptr %owner)
  %r = call i32 @PyCapsule_SetContext(ptr %c, ptr %owner)
  br label %end
end:
  ret ptr %c
}
"""

_BUFFERS = """\
define ptr @py_new_buffer(ptr %self, ptr %args, i64 %n) {
entry:
  %right = icmp eq i64 %n, 1
  br i1 %right, label %number, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.new, i64 1, i64 %n)
  ret ptr null
number:
  %a0 = load ptr, ptr %args
  %bytes = call i64 @PyLong_AsLongLong(ptr %a0)
  %negative = icmp slt i64 %bytes, 0
  br i1 %negative, label %check, label %take
check:
  %raised = call ptr @PyErr_Occurred()
  %is_number = icmp eq ptr %raised, null
  br i1 %is_number, label %refuse, label %fail
refuse:
  %ve = load ptr, ptr @value_error
  %e2 = call ptr (ptr, ptr, ...) @PyErr_Format(ptr %ve, ptr @text.negative, i64 %bytes)
  ret ptr null
take:
  %p = call ptr @tengen_take(i64 %bytes)
  %none = icmp eq ptr %p, null
  br i1 %none, label %memory, label %make
memory:
  %e3 = call ptr @no_memory(ptr @text.buffer, i64 %bytes)
  ret ptr null
make:
  %c = call ptr @PyCapsule_New(ptr %p, ptr null, ptr @release_block)
  %unmade = icmp eq ptr %c, null
  br i1 %unmade, label %undo, label %done
undo:
  call void @tengen_give(ptr %p)
  ret ptr null
done:
  ret ptr %c
fail:
  ret ptr null
}

; %view_t is Py_buffer: where it begins, who exports it, its bytes, bytes of an element, and six words more. Flags of 0 ask for dense bytes
; in C order.
%view_t = type { ptr, ptr, i64, i64, [6 x i64] }
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @py_copied(ptr %self, ptr %args, i64 %n) {
entry:
  %view = alloca %view_t, align 16
  %right = icmp eq i64 %n, 1
  br i1 %right, label %ask, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.copied, i64 1, i64 %n)
  ret ptr null
ask:
  %a0 = load ptr, ptr %args
  %refused = call i32 @PyObject_GetBuffer(ptr %a0, ptr %view, i32 0)
  %shown = icmp eq i32 %refused, 0
  br i1 %shown, label %take, label %fail
take:
  %from = load ptr, ptr %view
  %bytes.p = getelementptr %view_t, ptr %view, i64 0, i32 2
  %bytes = load i64, ptr %bytes.p
  %p = call ptr @tengen_take(i64 %bytes)
  %none = icmp eq ptr %p, null
  br i1 %none, label %memory, label %size
memory:
  call void @PyBuffer_Release(ptr %view)
  %e2 = call ptr @no_memory(ptr @text.buffer, i64 %bytes)
  ret ptr null
size:
  %many = icmp sge i64 %bytes, $UNLOCKED$
  br i1 %many, label %unlocked, label %locked
unlocked:
  %thread = call ptr @PyEval_SaveThread()
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %from, i64 %bytes, i1 false)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %make
locked:
  call void @llvm.memcpy.p0.p0.i64(ptr %p, ptr %from, i64 %bytes, i1 false)
  br label %make
make:
  call void @PyBuffer_Release(ptr %view)
  %c = call ptr @PyCapsule_New(ptr %p, ptr null, ptr @release_block)
  %unmade = icmp eq ptr %c, null
  br i1 %unmade, label %undo, label %done
undo:
  call void @tengen_give(ptr %p)
  ret ptr null
done:
  ret ptr %c
fail:
  ret ptr null
}

; The exporter's reference is what keeps the memory: the view is given back at once.
define ptr @py_over(ptr %self, ptr %args, i64 %n) {
entry:
  %view = alloca %view_t, align 16
  %right = icmp eq i64 %n, 1
  br i1 %right, label %ask, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.over, i64 1, i64 %n)
  ret ptr null
ask:
  %a0 = load ptr, ptr %args
  %refused = call i32 @PyObject_GetBuffer(ptr %a0, ptr %view, i32 0)
  %shown = icmp eq i32 %refused, 0
  br i1 %shown, label %look, label %fail
look:
  %p = load ptr, ptr %view
  %item.p = getelementptr %view_t, ptr %view, i64 0, i32 3
  %item = load i64, ptr %item.p
  call void @PyBuffer_Release(ptr %view)
  %at = ptrtoint ptr %p to i64
  %item.least = call i64 @llvm.umax.i64(i64 %item, i64 1)
  %past = urem i64 %at, %item.least
  %aligned = icmp eq i64 %past, 0
  br i1 %aligned, label %borrow, label %copy
borrow:
  %c = call ptr @borrow(ptr %p, ptr %a0)
  ret ptr %c
copy:
  %d = call ptr @py_copied(ptr %self, ptr %args, i64 %n)
  ret ptr %d
fail:
  ret ptr null
}

; A view of a view keeps the first owner, not the view between: chains of views stay one link long.
define ptr @py_view(ptr %self, ptr %args, i64 %n) {
entry:
  %right = icmp eq i64 %n, 2
  br i1 %right, label %first, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.view, i64 2, i64 %n)
  ret ptr null
first:
  %a0 = load ptr, ptr %args
  %p = call ptr @PyCapsule_GetPointer(ptr %a0, ptr null)
  %none = icmp eq ptr %p, null
  br i1 %none, label %type, label %second
type:
  %e2 = call ptr @bad_type(ptr @name.view, i64 0, ptr %a0)
  ret ptr null
second:
  %a1.p = getelementptr ptr, ptr %args, i64 1
  %a1 = load ptr, ptr %a1.p
  %offset = call i64 @PyLong_AsLongLong(ptr %a1)
  %odd = icmp eq i64 %offset, -1
  br i1 %odd, label %check, label %owner
check:
  %raised = call ptr @PyErr_Occurred()
  %is_number = icmp eq ptr %raised, null
  br i1 %is_number, label %owner, label %fail
owner:
  %destructor = call ptr @PyCapsule_GetDestructor(ptr %a0)
  %is_view = icmp eq ptr %destructor, @release_owner
  br i1 %is_view, label %through, label %make
through:
  %inner = call ptr @PyCapsule_GetContext(ptr %a0)
  br label %make
make:
  %keep = phi ptr [%a0, %owner], [%inner, %through]
  %q = getelementptr i8, ptr %p, i64 %offset
  %c = call ptr @borrow(ptr %q, ptr %keep)
  ret ptr %c
fail:
  ret ptr null
}

define ptr @py_wrap(ptr %self, ptr %args, i64 %n) {
entry:
  %right = icmp eq i64 %n, 2
  br i1 %right, label %number, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.wrap, i64 2, i64 %n)
  ret ptr null
number:
  %a0 = load ptr, ptr %args
  %p = call ptr @PyLong_AsVoidPtr(ptr %a0)
  %null = icmp eq ptr %p, null
  br i1 %null, label %check, label %make
check:                                                 ; an address of 0 is refused by PyCapsule_New, with a ValueError
  %raised = call ptr @PyErr_Occurred()
  %is_number = icmp eq ptr %raised, null
  br i1 %is_number, label %make, label %fail
make:
  %a1.p = getelementptr ptr, ptr %args, i64 1
  %a1 = load ptr, ptr %a1.p
  %c = call ptr @borrow(ptr %p, ptr %a1)
  ret ptr %c
fail:
  ret ptr null
}

define ptr @py_address(ptr %self, ptr %args, i64 %n) {
entry:
  %right = icmp eq i64 %n, 1
  br i1 %right, label %first, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.address, i64 1, i64 %n)
  ret ptr null
first:
  %a0 = load ptr, ptr %args
  %p = call ptr @PyCapsule_GetPointer(ptr %a0, ptr null)
  %none = icmp eq ptr %p, null
  br i1 %none, label %type, label %make
type:
  %e2 = call ptr @bad_type(ptr @name.address, i64 0, ptr %a0)
  ret ptr null
make:
  %i = call ptr @PyLong_FromVoidPtr(ptr %p)
  ret ptr %i
}

define ptr @py_borrowed(ptr %self, ptr %args, i64 %n) {
entry:
  %right = icmp eq i64 %n, 1
  br i1 %right, label %first, label %count
count:
  %e1 = call ptr @bad_count(ptr @name.borrowed, i64 1, i64 %n)
  ret ptr null
first:
  %a0 = load ptr, ptr %args
  %p = call ptr @PyCapsule_GetPointer(ptr %a0, ptr null)
  %none = icmp eq ptr %p, null
  br i1 %none, label %type, label %look
type:
  %e2 = call ptr @bad_type(ptr @name.borrowed, i64 0, ptr %a0)
  ret ptr null
look:
  %destructor = call ptr @PyCapsule_GetDestructor(ptr %a0)
  %is_view = icmp eq ptr %destructor, @release_owner
  %answer = zext i1 %is_view to i64
  %b = call ptr @PyBool_FromLong(i64 %answer)
  ret ptr %b
}

; The number of references is the first 32 bits of an object, in every CPython from 3.11 to 3.14 on a little-endian machine.
define ptr @py_sole(ptr %self, ptr %args, i64 %n) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%j, %owned]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %look, label %answer
look:
  %a.p = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %a.p
  %p = call ptr @PyCapsule_GetPointer(ptr %a, ptr null)
  %none = icmp eq ptr %p, null
  br i1 %none, label %type, label %count
type:
  %e = call ptr @bad_type(ptr @name.sole, i64 %i, ptr %a)
  ret ptr null
count:
  %references = load i32, ptr %a
  %shared = icmp ugt i32 %references, 2
  br i1 %shared, label %answer, label %owner
owner:
  %destructor = call ptr @PyCapsule_GetDestructor(ptr %a)
  %is_view = icmp eq ptr %destructor, @release_owner
  br i1 %is_view, label %answer, label %owned
owned:
  %j = add i64 %i, 1
  br label %next
answer:
  %all = phi i64 [1, %next], [0, %count], [0, %owner]
  %b = call ptr @PyBool_FromLong(i64 %all)
  ret ptr %b
}
"""
