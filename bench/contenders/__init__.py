"""The contenders: each module starts one. All have the role that ``contender`` defines."""
