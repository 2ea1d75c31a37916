; Programs for the tests of the runtime. Each has the signature of a program: buffers, integers, parallel.

; one output: out[i] = in0[i] + in1[i] for i < ints[0], float32
define void @add(ptr %buffers, ptr %ints, ptr %parallel) {
entry:
  %a = load ptr, ptr %buffers
  %b.p = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.p
  %o.p = getelementptr ptr, ptr %buffers, i64 2
  %o = load ptr, ptr %o.p
  %n = load i64, ptr %ints
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %end
one:
  %x.p = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %x.p
  %y.p = getelementptr float, ptr %b, i64 %i
  %y = load float, ptr %y.p
  %z = fadd float %x, %y
  %z.p = getelementptr float, ptr %o, i64 %i
  store float %z, ptr %z.p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

; in place: in0[0] = in0[0] + ints[0], int64; buffers are in0 and the output, which must be the same
define void @bump(ptr %buffers, ptr %ints, ptr %parallel) {
  %a = load ptr, ptr %buffers
  %o.p = getelementptr ptr, ptr %buffers, i64 1
  %o = load ptr, ptr %o.p
  %x = load i64, ptr %a
  %n = load i64, ptr %ints
  %y = add i64 %x, %n
  store i64 %y, ptr %o
  ret void
}

; buffers 0..ints[0]-1, by address, into the int64s of buffer ints[1]
define void @addresses(ptr %buffers, ptr %ints, ptr %parallel) {
entry:
  %n = load i64, ptr %ints
  %k.p = getelementptr i64, ptr %ints, i64 1
  %k = load i64, ptr %k.p
  %o.p = getelementptr ptr, ptr %buffers, i64 %k
  %o = load ptr, ptr %o.p
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %one, label %end
one:
  %b.p = getelementptr ptr, ptr %buffers, i64 %i
  %b = load i64, ptr %b.p
  %s.p = getelementptr i64, ptr %o, i64 %i
  store i64 %b, ptr %s.p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

; slot[i] = i * i + 1 for each piece: a piece that ran twice or never would show
define internal void @square_kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop) {
entry:
  %slots = load ptr, ptr %buffers
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %one, label %end
one:
  %p = getelementptr i64, ptr %slots, i64 %i
  %old = load i64, ptr %p
  %square = mul i64 %i, %i
  %square1 = add i64 %square, 1
  %new = add i64 %old, %square1
  store i64 %new, ptr %p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

define internal void @zero_kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop) {
entry:
  %slots = load ptr, ptr %buffers
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %one, label %end
one:
  %p = getelementptr i64, ptr %slots, i64 %i
  store i64 0, ptr %p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

; two kernels in a row over ints[0] pieces: the second reads what the first wrote, maybe in another thread
define void @squares(ptr %buffers, ptr %ints, ptr %parallel) {
  %n = load i64, ptr %ints
  call void %parallel(ptr @zero_kernel, ptr %buffers, ptr %ints, i64 %n)
  call void %parallel(ptr @square_kernel, ptr %buffers, ptr %ints, i64 %n)
  ret void
}

; ints[1] times: parallel over ints[0] pieces, each of which adds 1 to its slot
define internal void @count_kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop) {
entry:
  %slots = load ptr, ptr %buffers
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %one, label %end
one:
  %p = getelementptr i64, ptr %slots, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

define void @counts(ptr %buffers, ptr %ints, ptr %parallel) {
entry:
  %n = load i64, ptr %ints
  %times.p = getelementptr i64, ptr %ints, i64 1
  %times = load i64, ptr %times.p
  br label %next
next:
  %i = phi i64 [0, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %times
  br i1 %more, label %one, label %end
one:
  call void %parallel(ptr @count_kernel, ptr %buffers, ptr %ints, i64 %n)
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

; Two pieces that wait for each other, at most ints[1] spins: slot 2+i is set where piece i saw the other one. On one thread
; piece 0 gives up.
define internal void @meet_kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop) {
entry:
  %slots = load ptr, ptr %buffers
  %limit.p = getelementptr i64, ptr %ints, i64 1
  %limit = load i64, ptr %limit.p
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i.next, %done]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %one, label %end
one:
  %other = xor i64 %i, 1
  %mine.p = getelementptr i64, ptr %slots, i64 %i
  %other.p = getelementptr i64, ptr %slots, i64 %other
  store atomic i64 1, ptr %mine.p seq_cst, align 8
  br label %spin
spin:
  %s = phi i64 [0, %one], [%s.next, %again]
  %there = load atomic i64, ptr %other.p seq_cst, align 8
  %met = icmp ne i64 %there, 0
  br i1 %met, label %done, label %wait
wait:
  %s.next = add i64 %s, 1
  %tired = icmp sge i64 %s.next, %limit
  br i1 %tired, label %done, label %again
again:
  %y = call i32 @sched_yield()
  br label %spin
done:
  %saw = phi i64 [1, %spin], [0, %wait]
  %saw.i = add i64 %i, 2
  %saw.p = getelementptr i64, ptr %slots, i64 %saw.i
  store i64 %saw, ptr %saw.p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}
declare i32 @sched_yield()

define void @meet(ptr %buffers, ptr %ints, ptr %parallel) {
  %n = load i64, ptr %ints
  call void %parallel(ptr @meet_kernel, ptr %buffers, ptr %ints, i64 %n)
  ret void
}

; each piece keeps its number at both ends of an array of 6 MiB on the stack
define internal void @deep_kernel(ptr %buffers, ptr %ints, i64 %begin, i64 %stop) {
entry:
  %array = alloca [786432 x i64], align 64
  %slots = load ptr, ptr %buffers
  %far = getelementptr i64, ptr %array, i64 786431
  br label %next
next:
  %i = phi i64 [%begin, %entry], [%i.next, %one]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %one, label %end
one:
  store volatile i64 %i, ptr %array
  store volatile i64 0, ptr %far
  %x = load volatile i64, ptr %array
  %p = getelementptr i64, ptr %slots, i64 %i
  store i64 %x, ptr %p
  %i.next = add i64 %i, 1
  br label %next
end:
  ret void
}

define void @deep(ptr %buffers, ptr %ints, ptr %parallel) {
  %n = load i64, ptr %ints
  call void %parallel(ptr @deep_kernel, ptr %buffers, ptr %ints, i64 %n)
  ret void
}
