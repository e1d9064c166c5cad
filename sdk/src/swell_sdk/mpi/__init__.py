"""What lets `mpirun` start ranks in the other tasks of its job, where there is no ssh (`swell run --mpi`).

Every task of the job runs `program.py` with the user's command. Task 0 listens at MASTER_ADDR:MASTER_PORT until all
others have come, then listens no more and runs the command; the others wait for orders. The remote shell that `mpirun`
is told to use is this program again: it asks task 0, by a socket in a folder that only its user can enter, to run a
command on a host, and task 0 asks the task that is this host. So MPI's daemon, and the ranks that it starts, are
processes of that task: of its user, in its control groups, with its GPUs and its environment. When the command of
task 0 ends, or a connection is lost, all of them end.
"""
