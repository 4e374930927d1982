-- Result: replies to the call. Last part of every script, and of every function of the library.
return run_all(run, FIRST_READ_END, LEAST, keys, runs, value)
