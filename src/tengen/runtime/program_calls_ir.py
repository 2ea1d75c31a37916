"""What programs call while they run, as LLVM IR: `tengen_stop`, which a loop asks whether it is to end, and `tengen_host`, which calls
Python. Both take the interpreter's lock, which a running program may not hold.

Goes out: text that `native_ir.py` puts into the module of the builtins, after what it declares.
"""

LOOK_NS = 50_000_000  # of a loop that may never end, between two looks at signals

# state: the iteration at which it is called next; the time of the last look at signals, in ns; iterations to the next call. The
# number of iterations doubles until a look is due, so there are few calls, and is halved at a look.
STOP = """\
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

# An exception stays set in the thread's state: later calls of the run are left out, loops that ask end, and `py_plan` raises it.
HOST = """\
@host = internal global ptr null

define void @tengen_host_init(ptr %callable) {
  call void @Py_IncRef(ptr %callable)
  store ptr %callable, ptr @host
  ret void
}

define i32 @tengen_host(ptr %places, ptr %shapes) noinline cold {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %before = call ptr @PyErr_Occurred()
  %none = icmp eq ptr %before, null
  br i1 %none, label %go, label %end
go:
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
  %code = phi i32 [1, %entry], [1, %go], [0, %done]
  call void @PyGILState_Release(i32 %lock)
  ret i32 %code
}
"""
