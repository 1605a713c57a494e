module example.com/app

go 1.25.0
