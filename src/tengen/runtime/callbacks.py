"""What programs call while they run, as LLVM IR: a look at signals, and Python; and what threads call that have nothing to compute.

Comes in: nothing. Goes out: text of three functions, which follows that of `native_ir.py` in one module. An exception stays set in the
thread's state until the run has ended: later calls of Python are left out, loops that ask end, and `py_plan` raises it.
"""

from __future__ import annotations

LOOK_NS = 50_000_000  # of a loop that may never end, between two looks at signals

# The functions of CPython that the text calls, besides those of `native_ir.py`; all in its stable interface.
CALLBACK_SYMBOLS = (
    "PyErr_CheckSignals", "PyErr_Clear", "PyErr_Fetch", "PyErr_Restore", "PyGILState_Ensure", "PyGILState_Release", "PyObject_CallObject",
)  # fmt: skip


def callbacks_ir() -> str:
    """The LLVM IR of ``i32 tengen_stop(i64 state[3], i64 step)``, which loops of programs call (`compiler/program_ir.py`), and of
    ``i32 tengen_host(ptr* places, i64* shapes)``, by which programs call Python (`tensor/host.py`); ``tengen_host_init`` says what.
    ``void tengen_idle()`` gives back what the pool of memory need not keep; a thread without the interpreter's lock calls it."""
    return _DECLARED + _STOP + _HOST + _IDLE


_DECLARED = """\
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Clear()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyObject_CallObject(ptr, ptr)
"""

# state: the iteration at which it is called next; the time of the last look at signals, in ns; iterations to the next call. The
# number of iterations doubles until a look is due, so there are few calls, and is halved at a look.
_STOP = """\
define i32 @tengen_stop(ptr %state, i64 %step) noinline cold {
entry:
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %ns.p = getelementptr i64, ptr %t, i64 1
  %ns = load i64, ptr %ns.p
  %s.ns = mul i64 %s, 1000000000
  %now = add i64 %s.ns, %ns
  %last.p = getelementptr i64, ptr %state, i64 1
  %some.p = getelementptr i64, ptr %state, i64 2
  %last = load i64, ptr %last.p
  %some = load i64, ptr %some.p
  %first = icmp eq i64 %last, 0
  br i1 %first, label %begin, label %later
begin:
  store i64 %now, ptr %last.p
  br label %again
later:
  %spent = sub i64 %now, %last
  %due = icmp sge i64 %spent, $LOOK$
  br i1 %due, label %look, label %more
more:
  %double = shl i64 %some, 1
  %many = icmp sgt i64 %double, 1099511627776
  %most = select i1 %many, i64 1099511627776, i64 %double
  br label %again
look:
  store i64 %now, ptr %last.p
  %lock = call i32 @PyGILState_Ensure()
  %before = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %before, null
  br i1 %none, label %ask, label %stop
ask:
  %code = call i32 @PyErr_CheckSignals()
  %raised = icmp ne i32 %code, 0
  br i1 %raised, label %stop, label %go
stop:
  call void @PyGILState_Release(i32 %lock)
  ret i32 1
go:
  %thread = call ptr @PyEval_SaveThread()              ; where an eager call holds the lock, other threads get it for a moment
  call void @PyEval_RestoreThread(ptr %thread)
  call void @PyGILState_Release(i32 %lock)
  %half = lshr i64 %some, 1
  br label %again
again:
  %n = phi i64 [1, %begin], [%most, %more], [%half, %go]
  %zero = icmp slt i64 %n, 1
  %next = select i1 %zero, i64 1, i64 %n
  store i64 %next, ptr %some.p
  %at = add i64 %step, %next
  store i64 %at, ptr %state
  ret i32 0
}
""".replace("$LOOK$", str(LOOK_NS))

# A key below 0 is that of a store (`runtime/paging.py`). Values of the program lie in it, so it is called also where an exception is set,
# and once more where a signal's handler has interrupted the call: so the run computes what it would without the exception, and frees
# its pages. The first exception is the one that stays.
_HOST = """\
@host = internal global ptr null

define void @tengen_host_init(ptr %callable) {
  call void @Py_IncRef(ptr %callable)
  store ptr %callable, ptr @host
  ret void
}

; 1 if the call has raised
define internal i32 @call_host(ptr %places, ptr %shapes) {
entry:
  %f = load ptr, ptr @host
  %args = call ptr @PyTuple_New(i64 2)
  %a = call ptr @PyLong_FromVoidPtr(ptr %places)
  %e1 = call i32 @PyTuple_SetItem(ptr %args, i64 0, ptr %a)
  %b = call ptr @PyLong_FromVoidPtr(ptr %shapes)
  %e2 = call i32 @PyTuple_SetItem(ptr %args, i64 1, ptr %b)
  %r = call ptr @PyObject_CallObject(ptr %f, ptr %args)
  call void @Py_DecRef(ptr %args)
  %raised = icmp eq ptr %r, null
  br i1 %raised, label %end, label %done
done:
  call void @Py_DecRef(ptr %r)
  br label %end
end:
  %code = phi i32 [1, %entry], [0, %done]
  ret i32 %code
}

define i32 @tengen_host(ptr %places, ptr %shapes) noinline cold {
entry:
  %error = alloca [3 x ptr], align 8
  %e1 = getelementptr ptr, ptr %error, i64 1
  %e2 = getelementptr ptr, ptr %error, i64 2
  %lock = call i32 @PyGILState_Ensure()
  %at = load ptr, ptr %places
  %key = load i64, ptr %at
  %store = icmp slt i64 %key, 0
  br i1 %store, label %always, label %look
look:
  %before = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %before, null
  br i1 %none, label %go, label %end
go:
  %code = call i32 @call_host(ptr %places, ptr %shapes)
  br label %end
always:
  call void @PyErr_Fetch(ptr %error, ptr %e1, ptr %e2)
  %failed = call i32 @call_host(ptr %places, ptr %shapes)
  %again = icmp ne i32 %failed, 0
  br i1 %again, label %keep, label %restore
keep:
  %set = load ptr, ptr %error
  %first = icmp eq ptr %set, null
  br i1 %first, label %take, label %drop
take:
  call void @PyErr_Fetch(ptr %error, ptr %e1, ptr %e2)
  br label %once_more
drop:
  call void @PyErr_Clear()
  br label %once_more
once_more:
  %second = call i32 @call_host(ptr %places, ptr %shapes)
  call void @PyErr_Clear()
  br label %restore
restore:
  %type = load ptr, ptr %error
  %value = load ptr, ptr %e1
  %trace = load ptr, ptr %e2
  call void @PyErr_Restore(ptr %type, ptr %value, ptr %trace)
  br label %end
end:
  %r = phi i32 [1, %look], [%code, %go], [0, %restore]
  call void @PyGILState_Release(i32 %lock)
  ret i32 %r
}
"""

_IDLE = """\
define void @tengen_idle() {
  %lock = call i32 @PyGILState_Ensure()
  call void @tengen_age()
  call void @PyGILState_Release(i32 %lock)
  ret void
}
"""
