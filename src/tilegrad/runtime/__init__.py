"""What runs on the user's machine at launch time: arrays, object code, the cache, threads. Imports layer 0 only."""
