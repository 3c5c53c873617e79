"""What a lab about Triton kernels needs.

triton_here     Triton in a notebook: interpreted and metered, or something that says it is missing
student_kernel  a student's kernel in a test: read, compiled, run where nothing else of theirs ran
words           compilers' messages and faults in words
attention       attention in float64, and what it has to move, from definitions
cases           launches for tests, and what is expected of them
"""
