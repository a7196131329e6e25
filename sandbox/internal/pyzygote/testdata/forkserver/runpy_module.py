import runpy
print(sorted(k for k in runpy.run_path(__file__, run_name="other")) if __name__ == "__main__" else __name__)
