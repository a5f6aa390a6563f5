"""Times of calls and of the device: `timer.py` takes one sample, `device_lock.py` keeps others away meanwhile, and
`noise.py` says what could not be kept away. `ceilings.py` and `calibration.py` measure what the device can do.
"""
